"""Every private or version-dependent hook of torch and transformers that kvc relies on, in one place.

Each function names what it touches and which versions were checked; `tests/test_compat.py` has one test for each.
"""

import inspect
from typing import Any

CACHE_ARGUMENTS = ("cache", "past_key_values")  # transformers renamed `past_key_values` to `cache` in 5.x


def cache_argument(model: Any) -> str:
    """Name of the keyword under which ``model.forward`` takes its cache.

    transformers 5.24 says ``cache`` and still accepts ``past_key_values`` with a warning; before that only the latter
    exists. Raises TypeError for a model that takes neither.
    """
    names = inspect.signature(type(model).forward).parameters
    for name in CACHE_ARGUMENTS:
        if name in names:
            return name
    raise TypeError(f"{type(model).__name__}.forward takes no cache ({' or '.join(CACHE_ARGUMENTS)})")


def attention_implementation(model: Any) -> str:
    """Name of the attention function the model dispatches to: ``config._attn_implementation``, which has a public
    setter (``model.set_attn_implementation``) and no public getter (transformers 5.24)."""
    return str(model.config._attn_implementation)
