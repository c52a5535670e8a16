"""Definition, checks, fake kernel and scratch of kvc::mla_context_gathered."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops import mixed
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand
from kvc.ops.gathered_rows import check_lengths, check_rows, row_operands
from kvc.ops.mla_context.schema import check_chunk, check_operands, expanded_bytes
from kvc.ops.values import check_starts

NAME = "mla_context_gathered"
DEFINITION = (
    f"{NAME}(Tensor q_nope, Tensor q_rope, Tensor k, Tensor v, Tensor[] rows, Tensor page_table, Tensor committed, "
    "Tensor query_starts, Tensor w_uk, Tensor w_uv, Tensor? q_scale, Tensor? k_scale, Tensor? v_scale, *, "
    'int tokens_per_page, int chunk_tokens, float softmax_scale, str v_layout="rows") -> (Tensor, Tensor)'
)
OPERANDS = (
    Operand("q_nope", "T H N", ACTIVATIONS | BYTES),
    Operand("q_rope", "T H R", ACTIVATIONS | BYTES),
    Operand("k", "T H K", ACTIVATIONS | BYTES),
    Operand("v", "T H V", ACTIVATIONS | BYTES),
    Operand("page_table", "B W", INT32),
    Operand("committed", "B", INT32),
    Operand("query_starts", "B+1", INT32),
    Operand("w_uk", "H N C", ACTIVATIONS),
    Operand("w_uv", "H C V", ACTIVATIONS),
    Operand("q_scale", "2", FLOAT32, optional=True),
    Operand("k_scale", "2", FLOAT32, optional=True),
    Operand("v_scale", "2", FLOAT32, optional=True),
)


def check(
    *tensors: Any, tokens_per_page: int, chunk_tokens: int, softmax_scale: float, v_layout: str = "rows"
) -> dict[str, Any]:
    """Check shapes, strides, dtypes, scales and layout; return the sizes."""
    others, rows = _apart(tensors)
    fields = row_operands(NAME, rows, ("1 C", "1 R"))
    named = mixed.named((*OPERANDS, *fields), (*others, *rows))
    sizes = check_operands(NAME, (*OPERANDS, *fields), named, v_layout)
    check_rows(NAME, rows, sizes, tokens_per_page)
    check_chunk(NAME, chunk_tokens, tokens_per_page)
    return sizes


def _apart(tensors: Sequence[Any]) -> tuple[list[torch.Tensor], Sequence[torch.Tensor]]:
    """The operands but for the rows, and those."""
    return [*tensors[:4], *tensors[5:]], tensors[4]


def check_values(*tensors: Any, **_: Any) -> None:
    """Committed rows lie in the rows, own tokens in T."""
    q_nope, _q_rope, _k, _v, rows, _table, committed, query_starts = tensors[:8]
    check_lengths(NAME, "committed", committed, rows)
    check_starts(NAME, "query_starts", query_starts, q_nope.shape[0])


def fake(q_nope: torch.Tensor, *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    (tokens, heads), w_uv = q_nope.shape[:2], rest[8]
    return w_uv.new_empty((tokens, heads, w_uv.shape[2])), w_uv.new_empty((tokens, heads), dtype=torch.float32)


def scratch(*tensors: Any, chunk_tokens: int, **_: Any) -> int:
    """K and V of one expanded chunk of cached rows, for one sequence at a time: e4m3 under scales."""
    return expanded_bytes(mixed.named(OPERANDS, _apart(tensors)[0]), chunk_tokens)
