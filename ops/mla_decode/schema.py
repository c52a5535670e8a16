"""Definition, checks and fake kernel of kvc::mla_decode."""

from typing import Any

import torch

from kvc.ops import mixed
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, same_dtype
from kvc.ops.codecs.rows import MLA, check_scales
from kvc.ops.values import check_queries, check_range

TWIN = (mixed.TWIN, mixed.TWIN_TABLE, mixed.COMMITTED, *mixed.twin_scales(MLA))
DEFINITION = (
    "mla_decode(Tensor q_latent, Tensor q_rope, Tensor pool, Tensor page_table, Tensor lengths, Tensor? latent_scale, "
    f"Tensor? rope_scale{mixed.declared(TWIN)}, *, str encoding, int tokens_per_page, float softmax_scale, "
    f"{mixed.READS}) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("q_latent", "T H C", ACTIVATIONS),
    Operand("q_rope", "T H R", ACTIVATIONS),
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("lengths", "B", INT32),
    Operand("latent_scale", "2", FLOAT32, optional=True),
    Operand("rope_scale", "2", FLOAT32, optional=True),
    *TWIN,
)


def check(
    *tensors: Any,
    encoding: str,
    tokens_per_page: int,
    softmax_scale: float,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> dict[str, Any]:
    """Check shapes, dtypes and encodings; return the sizes."""
    named = mixed.named(OPERANDS, tensors)
    sizes = bind("mla_decode", OPERANDS, list(named.values()))
    same_dtype("mla_decode", {"q_latent": tensors[0], "q_rope": tensors[1]})
    scales = [("latent", "latent_scale", tensors[5]), ("rope", "rope_scale", tensors[6])]
    check_scales("mla_decode", encoding, scales)
    row = mixed.RowSizes(MLA, (1, 1), (sizes["C"], sizes["R"]))
    encodings, retained = (encoding, twin_encoding), (first, last, unit)
    mixed.check_pools("mla_decode", row, named, TWIN, encodings, tokens_per_page, retained)
    return sizes


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Every sequence has as many query tokens, pages lie in their pools, lengths in the table."""
    q_latent, _q_rope, pool, page_table, lengths = tensors[:5]
    check_queries("mla_decode", "q_latent", q_latent, lengths)
    check_range("mla_decode", "page_table", page_table, -1, pool.shape[0])
    check_range("mla_decode", "lengths", lengths, 0, page_table.shape[1] * tokens_per_page + 1)
    mixed.check_twin_values("mla_decode", mixed.named(OPERANDS, tensors), tokens_per_page)


def fake(q_latent: torch.Tensor, *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    return q_latent.new_empty(q_latent.shape), q_latent.new_empty(q_latent.shape[:2], dtype=torch.float32)
