"""Gathered rows as operands of attention: one tensor a field, [B, L, heads, dim]."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, Operand, known, same_dtype, wrong
from kvc.ops.values import check_range


def row_operands(op: str, rows: Sequence[torch.Tensor], axes: Sequence[str]) -> tuple[Operand, ...]:
    """An operand for each field; raises KVC551 where there are more or fewer rows than ``axes``."""
    if len(rows) != len(axes):
        raise wrong(op, "rows", f"holds {len(rows)} fields, expected {len(axes)}")
    return tuple(Operand(f"rows[{i}]", f"B L {axis}", ACTIVATIONS) for i, axis in enumerate(axes))


def check_rows(op: str, rows: Sequence[torch.Tensor], sizes: dict[str, Any], tokens_per_page: int) -> None:
    """Raise KVC551 unless the fields share a dtype and end with a page of the table."""
    same_dtype(op, {f"rows[{i}]": x for i, x in enumerate(rows)})
    if tokens_per_page < 1:
        raise wrong(op, "tokens_per_page", f"is {tokens_per_page}, expected 1 or more")
    length, width = sizes["L"], sizes["W"]
    if known(length, width) and length != width * tokens_per_page:
        raise wrong(op, "rows", f"axis L is {length}, expected {width * tokens_per_page}: the table's pages")


def check_lengths(op: str, argument: str, lengths: torch.Tensor, rows: Sequence[torch.Tensor]) -> None:
    """Raise KVC552 for a length beyond the rows."""
    check_range(op, argument, lengths, 0, rows[0].shape[1] + 1)
