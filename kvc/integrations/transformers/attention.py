"""The boundary of `gqa` layers: the attention function that transformers calls in place of its own."""

from typing import Any

from torch import Tensor, nn

from kvc.diagnostics import fail
from kvc.integrations.transformers.owners import owner_of

IMPLEMENTATION = "kvc"  # the name under which the function is registered

# Arguments of transformers' attention functions that change the result and have no counterpart in a `gqa` layer.
_UNSUPPORTED = {
    "softcap": "soft caps on attention scores",
    "s_aux": "attention sinks",
    "sliding_window": "sliding-window attention",
    "head_mask": "head masks",
}


def kvc_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: heads-first q, k, v -> ``(out [B, T, H, V], None)``; weights never exist.

    Padding is known from the step, so ``attention_mask`` is None here. Raises KvcError KVC614 for dropout, KVC617 for
    an option that kvc has no counterpart for, KVC610 for a module that no attachment owns.
    """
    owner = owner_of(module)
    if dropout:
        raise fail("KVC614", f"attention dropout {dropout} is for training", help="call model.eval()")
    for name, what in _UNSUPPORTED.items():
        if options.get(name) is not None:
            raise fail("KVC617", f"{what} are not supported ({name}={options[name]!r})", help="detach the model")
    layer: Any = module.layer_idx
    return owner.attend(layer, *(x.transpose(1, 2) for x in (query, key, value))), None
