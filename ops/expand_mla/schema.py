"""Definition, checks and fake kernel of kvc::expand_mla."""

from typing import Any

import torch

from kvc.diagnostics import fail
from kvc.ops import transposed
from kvc.ops.axes import ACTIVATIONS, FLOAT32, INT32, Operand, bind, same_dtype, wrong
from kvc.ops.values import check_starts

DEFINITION = (
    "expand_mla(Tensor latent, Tensor rope, Tensor w_uk, Tensor w_uv, Tensor? query_starts, Tensor? k_scale, "
    'Tensor? v_scale, *, str v_layout="rows") -> (Tensor, Tensor)'
)
OPERANDS = (
    Operand("latent", "T 1 C", ACTIVATIONS),
    Operand("rope", "T 1 R", ACTIVATIONS),
    Operand("w_uk", "H N C", ACTIVATIONS),
    Operand("w_uv", "H C V", ACTIVATIONS),
    Operand("query_starts", "B+1", INT32, optional=True),
    Operand("k_scale", "2", FLOAT32, optional=True),
    Operand("v_scale", "2", FLOAT32, optional=True),
)
V_LAYOUTS = ("rows", "transposed")


def check(*tensors: Any, v_layout: str = "rows") -> dict[str, Any]:
    """Check shapes, dtypes, scales and layout; return the sizes."""
    sizes = bind("expand_mla", OPERANDS, tensors)
    same_dtype("expand_mla", dict(zip(("latent", "rope", "w_uk", "w_uv"), tensors, strict=False)))
    check_v_layout("expand_mla", v_layout)
    if (tensors[4] is None) != (v_layout == "rows"):
        raise wrong("expand_mla", "query_starts", "go with v_layout=transposed: give both or neither")
    if (tensors[5] is None) != (tensors[6] is None):
        raise wrong("expand_mla", "v_scale", "goes with k_scale: give both or neither")
    return sizes


def check_v_layout(op: str, v_layout: str) -> None:
    """Raise KVC554 for a layout that is not known."""
    if v_layout not in V_LAYOUTS:
        raise fail("KVC554", f"kvc::{op}: v_layout {v_layout!r} is not known", help=f"one of {', '.join(V_LAYOUTS)}")


def check_values(latent: torch.Tensor, *rest: Any, **_: Any) -> None:
    """Sequences lie in T."""
    if rest[3] is not None:
        check_starts("expand_mla", "query_starts", rest[3], latent.shape[0])


def fake(
    latent: torch.Tensor,
    rope: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    query_starts: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    *rest: Any,
    v_layout: str = "rows",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    (heads, nope, _), tokens, width = w_uk.shape, latent.shape[0], w_uv.shape[2]
    like = latent if k_scale is None else latent.new_empty(0, dtype=torch.uint8)
    k = like.new_empty((tokens, heads, nope + rope.shape[2]))
    if query_starts is None:
        return k, like.new_empty((tokens, heads, width))
    size = transposed.columns(tokens, query_starts.shape[0] - 1)
    return k, transposed.empty(like, heads, width, size)
