"""Spec files: models, YAML positions, checks and the resolved form.

Light on import: pydantic is loaded by the first use of a name that needs it.
"""

from importlib import import_module
from typing import Any

# Public name -> the module that defines it.
_PUBLIC = {
    "load_spec": "kvc.specs.loading",
    "load_spec_text": "kvc.specs.loading",
    "library_specs": "kvc.specs.library",
    "parse_size": "kvc.specs.sizes",
    "BadValue": "kvc.specs.sizes",
    "ResolvedSpec": "kvc.specs.resolved",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvc.specs' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
