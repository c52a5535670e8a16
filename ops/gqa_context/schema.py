"""Definition, checks and fake kernel of kvc::gqa_context."""

from typing import Any

import torch

from kvc.ops import mixed
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, known, wrong
from kvc.ops.codecs.rows import KV, check_scales
from kvc.ops.values import check_range, check_starts

TWIN = (mixed.TWIN, mixed.TWIN_TABLE, *mixed.twin_scales(KV))
DEFINITION = (
    "gqa_context(Tensor q, Tensor k, Tensor v, Tensor pool, Tensor page_table, Tensor committed, Tensor query_starts, "
    f"Tensor? k_scale, Tensor? v_scale{mixed.declared(TWIN)}, *, str encoding, int tokens_per_page, "
    f"float softmax_scale, {mixed.READS}) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("q", "T H D", ACTIVATIONS),
    Operand("k", "T Hk D", ACTIVATIONS),
    Operand("v", "T Hk V", ACTIVATIONS),
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("committed", "B", INT32),
    Operand("query_starts", "B+1", INT32),
    Operand("k_scale", "2", FLOAT32, optional=True),
    Operand("v_scale", "2", FLOAT32, optional=True),
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
    sizes = bind("gqa_context", OPERANDS, list(named.values()))
    check_groups("gqa_context", sizes["H"], sizes["Hk"])
    check_scales("gqa_context", encoding, [("k", "k_scale", tensors[7]), ("v", "v_scale", tensors[8])])
    row = mixed.RowSizes(KV, (sizes["Hk"],) * 2, (sizes["D"], sizes["V"]))
    encodings, retained = (encoding, twin_encoding), (first, last, unit)
    mixed.check_pools("gqa_context", row, named, TWIN, encodings, tokens_per_page, retained)
    return sizes


def check_groups(op: str, heads: Any, kv_heads: Any) -> None:
    """Raise unless the query heads divide into groups of one KV head each."""
    if known(heads, kv_heads) and (kv_heads < 1 or heads % kv_heads):
        raise wrong(op, "q", f"axis H is {heads}, expected a multiple of the {kv_heads} KV heads")


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Pages lie in the pool, committed rows in the table, own tokens in T."""
    q, _k, _v, pool, page_table, committed, query_starts = tensors[:7]
    check_range("gqa_context", "page_table", page_table, -1, pool.shape[0])
    check_range("gqa_context", "committed", committed, 0, page_table.shape[1] * tokens_per_page + 1)
    check_starts("gqa_context", "query_starts", query_starts, q.shape[0])
    mixed.check_twin_values("gqa_context", mixed.named(OPERANDS, tensors), tokens_per_page)


def fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    tokens, heads, _dim = q.shape
    return q.new_empty((tokens, heads, v.shape[2])), q.new_empty((tokens, heads), dtype=torch.float32)
