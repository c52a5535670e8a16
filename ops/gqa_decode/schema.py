"""Definition, checks and fake kernel of kvc::gqa_decode."""

from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, wrong
from kvc.ops.codecs.rows import KV, check_scales
from kvc.ops.gqa_context.schema import check_groups
from kvc.ops.paging import check_encoded_pool
from kvc.ops.values import check_range

DEFINITION = (
    "gqa_decode(Tensor q, Tensor pool, Tensor page_table, Tensor lengths, Tensor? k_scale, Tensor? v_scale, *, "
    "str encoding, int tokens_per_page, int kv_heads, int v_head_dim, float softmax_scale) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("q", "T H D", ACTIVATIONS),
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("lengths", "B", INT32),
    Operand("k_scale", "2", FLOAT32, optional=True),
    Operand("v_scale", "2", FLOAT32, optional=True),
)


def check(
    *tensors: Any, encoding: str, tokens_per_page: int, kv_heads: int, v_head_dim: int, softmax_scale: float
) -> dict[str, Any]:
    """Check shapes, dtypes and encoding; return the sizes."""
    sizes = bind("gqa_decode", OPERANDS, tensors)
    check_groups("gqa_decode", sizes["H"], kv_heads)
    check_scales("gqa_decode", encoding, [("k", "k_scale", tensors[4]), ("v", "v_scale", tensors[5])])
    dims = (sizes["D"], v_head_dim)
    check_encoded_pool("gqa_decode", tensors[1], encoding, KV, (kv_heads,) * 2, dims, tokens_per_page)
    return sizes


def check_values(
    q: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    *scales: Any,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Every sequence has as many query tokens, pages lie in the pool, lengths in the table."""
    tokens, sequences = len(q), len(lengths)
    if tokens % sequences if sequences else tokens:
        raise wrong("gqa_decode", "q", f"axis T is {tokens}, expected a multiple of the {sequences} sequences")
    check_range("gqa_decode", "page_table", page_table, -1, pool.shape[0])
    check_range("gqa_decode", "lengths", lengths, 0, page_table.shape[1] * tokens_per_page + 1)


def fake(q: torch.Tensor, *rest: Any, v_head_dim: int, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    tokens, heads, _dim = q.shape
    return q.new_empty((tokens, heads, v_head_dim)), q.new_empty((tokens, heads), dtype=torch.float32)
