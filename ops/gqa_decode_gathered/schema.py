"""Definition, checks and fake kernel of kvc::gqa_decode_gathered."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, INT32, Operand, bind
from kvc.ops.gathered_rows import check_lengths, check_rows, row_operands
from kvc.ops.gqa_context.schema import check_groups
from kvc.ops.values import check_queries

NAME = "gqa_decode_gathered"
DEFINITION = (
    f"{NAME}(Tensor q, Tensor[] rows, Tensor page_table, Tensor lengths, *, int tokens_per_page, "
    "float softmax_scale) -> (Tensor, Tensor)"
)
OPERANDS = (Operand("q", "T H D", ACTIVATIONS), Operand("page_table", "B W", INT32), Operand("lengths", "B", INT32))


def check(
    q: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    tokens_per_page: int,
    softmax_scale: float,
) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    fields = row_operands(NAME, rows, ("Hk D", "Hk V"))
    sizes = bind(NAME, (*OPERANDS, *fields), (q, page_table, lengths, *rows))
    check_groups(NAME, sizes["H"], sizes["Hk"])
    check_rows(NAME, rows, sizes, tokens_per_page)
    return sizes


def check_values(
    q: torch.Tensor, rows: Sequence[torch.Tensor], page_table: torch.Tensor, lengths: torch.Tensor, **_: Any
) -> None:
    """Every sequence has as many query tokens, lengths lie in the rows."""
    check_queries(NAME, "q", q, lengths)
    check_lengths(NAME, "lengths", lengths, rows)


def fake(q: torch.Tensor, rows: Sequence[torch.Tensor], *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    tokens, heads, _dim = q.shape
    return q.new_empty((tokens, heads, rows[1].shape[3])), q.new_empty((tokens, heads), dtype=torch.float32)
