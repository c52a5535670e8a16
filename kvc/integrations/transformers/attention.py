"""The attention function that transformers calls in place of its own, and what it cannot do."""

from typing import Any, Protocol
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import AttentionInterface

from kvc.diagnostics import fail

IMPLEMENTATION = "kvc"  # the name under which the function is registered

# Arguments of transformers' attention functions that change the result and have no counterpart in a `gqa` layer.
_UNSUPPORTED = {
    "softcap": "soft caps on attention scores",
    "s_aux": "attention sinks",
    "sliding_window": "sliding-window attention",
    "head_mask": "head masks",
}


class Attends(Protocol):
    """Who owns an attention module."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """q ``[B, H, T, D]``, k ``[B, Hk, T, D]``, v ``[B, Hk, T, V]`` before RoPE -> ``[B, T, H, V]``."""


_OWNERS: WeakKeyDictionary[nn.Module, Attends] = WeakKeyDictionary()


def claim(modules: list[nn.Module], owner: Attends) -> None:
    """Let ``owner`` answer for these attention modules, and make sure transformers knows the function."""
    AttentionInterface.register(IMPLEMENTATION, kvc_attention)
    _OWNERS.update((module, owner) for module in modules)


def disown(modules: list[nn.Module]) -> None:
    """Undo `claim`; the function stays registered, it answers for nobody."""
    for module in modules:
        _OWNERS.pop(module, None)


def kvc_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: ``(out [B, T, H, V], None)``; weights are never materialised.

    Padding is known from the step, so ``attention_mask`` is None here. Raises KvcError KVC614 for dropout, KVC617 for
    an option that kvc has no counterpart for, KVC610 for a module that no attachment owns.
    """
    owner = _OWNERS.get(module)
    if owner is None:
        raise fail("KVC610", "this attention module is not attached to a kvc cache", help="call attach(model, ...)")
    if dropout:
        raise fail("KVC614", f"attention dropout {dropout} is for training", help="call model.eval()")
    for name, what in _UNSUPPORTED.items():
        if options.get(name) is not None:
            raise fail("KVC617", f"{what} are not supported ({name}={options[name]!r})", help="detach the model")
    layer: Any = module.layer_idx
    return owner.attend(layer, query, key, value), None
