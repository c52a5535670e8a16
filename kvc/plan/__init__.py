"""The memory plan of a spec: pure Python, no torch, no pydantic.

``make_plan(spec, device_bytes=None) -> Plan`` is resolved on first use; the data classes are in `kvc.plan.types`.
"""

from importlib import import_module
from typing import Any

# Public name -> the module that defines it.
_PUBLIC = {"Plan": "kvc.plan.types", "make_plan": "kvc.plan.planner"}
__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvc.plan' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
