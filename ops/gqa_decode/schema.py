"""Definition, checks and fake kernel of kvc::gqa_decode."""

from typing import Any

import torch

from kvc.ops import mixed
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind
from kvc.ops.codecs.rows import KV, check_scales
from kvc.ops.gqa_context.schema import check_groups
from kvc.ops.values import check_queries, check_range

TWIN = (mixed.TWIN, mixed.TWIN_TABLE, mixed.COMMITTED, *mixed.twin_scales(KV))
DEFINITION = (
    "gqa_decode(Tensor q, Tensor pool, Tensor page_table, Tensor lengths, Tensor? k_scale, Tensor? v_scale"
    f"{mixed.declared(TWIN)}, *, str encoding, int tokens_per_page, int kv_heads, int v_head_dim, "
    f"float softmax_scale, {mixed.READS}) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("q", "T H D", ACTIVATIONS),
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("lengths", "B", INT32),
    Operand("k_scale", "2", FLOAT32, optional=True),
    Operand("v_scale", "2", FLOAT32, optional=True),
    *TWIN,
)


def check(
    *tensors: Any,
    encoding: str,
    tokens_per_page: int,
    kv_heads: int,
    v_head_dim: int,
    softmax_scale: float,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> dict[str, Any]:
    """Check shapes, dtypes and encodings; return the sizes."""
    named = mixed.named(OPERANDS, tensors)
    sizes = bind("gqa_decode", OPERANDS, list(named.values()))
    check_groups("gqa_decode", sizes["H"], kv_heads)
    check_scales("gqa_decode", encoding, [("k", "k_scale", tensors[4]), ("v", "v_scale", tensors[5])])
    row = mixed.RowSizes(KV, (kv_heads,) * 2, (sizes["D"], v_head_dim))
    encodings, retained = (encoding, twin_encoding), (first, last, unit)
    mixed.check_pools("gqa_decode", row, named, TWIN, encodings, tokens_per_page, retained)
    return sizes


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Every sequence has as many query tokens, pages lie in their pools, lengths in the table."""
    q, pool, page_table, lengths = tensors[:4]
    check_queries("gqa_decode", "q", q, lengths)
    check_range("gqa_decode", "page_table", page_table, -1, pool.shape[0])
    check_range("gqa_decode", "lengths", lengths, 0, page_table.shape[1] * tokens_per_page + 1)
    mixed.check_twin_values("gqa_decode", mixed.named(OPERANDS, tensors), tokens_per_page)


def fake(q: torch.Tensor, *rest: Any, v_head_dim: int, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    tokens, heads, _dim = q.shape
    return q.new_empty((tokens, heads, v_head_dim)), q.new_empty((tokens, heads), dtype=torch.float32)
