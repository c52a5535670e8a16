"""Definition, checks and fake kernel of kvc::write_rows."""

from typing import Any

import torch

from kvc.ops.axes import INT32, Operand, bind, wrong
from kvc.ops.values import check_range, check_tokens

DEFINITION = "write_rows(Tensor page_table, Tensor positions, Tensor sequence_ids, *, int tokens_per_page) -> Tensor"
OPERANDS = (
    Operand("page_table", "B W", INT32),
    Operand("positions", "T", INT32),
    Operand("sequence_ids", "T", INT32),
)
_INT32_END = 2**31


def check(
    page_table: torch.Tensor, positions: torch.Tensor, sequence_ids: torch.Tensor, *, tokens_per_page: int
) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    if not 1 <= tokens_per_page < _INT32_END:
        raise wrong("write_rows", "tokens_per_page", f"is {tokens_per_page}, expected 1 <= value < {_INT32_END}")
    return bind("write_rows", OPERANDS, (page_table, positions, sequence_ids))


def check_values(
    page_table: torch.Tensor, positions: torch.Tensor, sequence_ids: torch.Tensor, *, tokens_per_page: int
) -> None:
    """Sequences exist, positions of tokens that are not padding lie in the table, and write rows fit in int32."""
    sequences, width = page_table.shape
    check_range("write_rows", "page_table", page_table, -1, _INT32_END // tokens_per_page)
    check_tokens("write_rows", positions, sequence_ids, sequences, width * tokens_per_page)


def fake(
    page_table: torch.Tensor, positions: torch.Tensor, sequence_ids: torch.Tensor, *, tokens_per_page: int
) -> torch.Tensor:
    """An empty result."""
    return positions.new_empty(positions.shape)
