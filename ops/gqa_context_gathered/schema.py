"""Definition, checks and fake kernel of kvc::gqa_context_gathered."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, INT32, Operand, bind
from kvc.ops.gathered_rows import check_lengths, check_rows, row_operands
from kvc.ops.gqa_context.schema import check_groups
from kvc.ops.values import check_starts

NAME = "gqa_context_gathered"
DEFINITION = (
    f"{NAME}(Tensor q, Tensor k, Tensor v, Tensor[] rows, Tensor page_table, Tensor committed, Tensor query_starts, *, "
    "int tokens_per_page, float softmax_scale) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("q", "T H D", ACTIVATIONS),
    Operand("k", "T Hk D", ACTIVATIONS),
    Operand("v", "T Hk V", ACTIVATIONS),
    Operand("page_table", "B W", INT32),
    Operand("committed", "B", INT32),
    Operand("query_starts", "B+1", INT32),
)


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rows: Sequence[torch.Tensor],
    *step: torch.Tensor,
    tokens_per_page: int,
    softmax_scale: float,
) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    fields = row_operands(NAME, rows, ("Hk D", "Hk V"))
    sizes = bind(NAME, (*OPERANDS, *fields), (q, k, v, *step, *rows))
    check_groups(NAME, sizes["H"], sizes["Hk"])
    check_rows(NAME, rows, sizes, tokens_per_page)
    return sizes


def check_values(*tensors: Any, **_: Any) -> None:
    """Committed rows lie in the rows, own tokens in T."""
    q, _k, _v, rows, _table, committed, query_starts = tensors
    check_lengths(NAME, "committed", committed, rows)
    check_starts(NAME, "query_starts", query_starts, q.shape[0])


def fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    tokens, heads, _dim = q.shape
    return q.new_empty((tokens, heads, v.shape[2])), q.new_empty((tokens, heads), dtype=torch.float32)
