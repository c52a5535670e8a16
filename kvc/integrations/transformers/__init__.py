"""Running transformers models on kvc's cache: `attach(model, artifact)`.

Needs the extra ``hf`` (`pip install 'kvc[hf]'`), which is imported when the first name is used.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kvc.diagnostics import fail

_PUBLIC = {
    "attach": "attachment",
    "Attachment": "attachment",
    "GenerateCache": "caches",
    "Runner": "runner",
    "FAMILIES": "families",
}
__all__ = [*_PUBLIC, "require_transformers"]
_EXTRA = ("transformers", "gguf", "accelerate")


def require_transformers() -> None:
    """Raise KvcError KVC601 where the packages of the extra ``hf`` are not installed."""
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise fail("KVC601", f"running a model needs {', '.join(missing)}", help="pip install 'kvc[hf]'")


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use; KvcError KVC601 without the extra."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_transformers()
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
