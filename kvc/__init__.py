"""kvc: a compiler for the KV cache of language models.

Data flows one way: spec -> plan -> graph -> passes -> artifact -> runtime. Importing ``kvc`` imports neither torch nor
pydantic; ``load``, ``compile_spec`` and the runtime classes are resolved on first use.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public name -> the module that defines it.
_PUBLIC = {
    "compile_spec": "kvc.compiler",
    "load": "kvc.runtime.loader",
    "load_weights": "kvc.runtime.weight_files",
    "LoadedArtifact": "kvc.runtime.loader",
    "Cache": "kvc.runtime.cache",
    "CacheManager": "kvc.runtime.cache_manager",
    "GraphRunner": "kvc.runtime.graph_runner",
    "capture_inputs": "kvc.runtime.capture",
    "replay_bucket": "kvc.runtime.capture",
    "Request": "kvc.runtime.batch",
    "OutOfPages": "kvc.runtime.out_of_pages",
    "KvcError": "kvc.diagnostics",
}
__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvc' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """Public names, for completion."""
    return list(__all__)
