"""Definition, checks and fake kernel of kvc::stage_history."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import BYTES, INT32, Operand, bind
from kvc.ops.mixed import READS, TWIN, TWIN_TABLE
from kvc.ops.staging import Fields, check_room, check_writable
from kvc.ops.values import check_range

NAME = "stage_history"
DEFINITION = (
    f"{NAME}(Tensor(a!)[] staging, Tensor pool, Tensor page_table, Tensor? twin, Tensor? twin_table, Tensor lengths, "
    "Tensor committed, Tensor?[] scales, Tensor?[] twin_scales, *, str encoding, str[] fields, int tokens_per_page, "
    f"{READS}) -> ()"
)
OPERANDS = (
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    TWIN,
    TWIN_TABLE,
    Operand("lengths", "B", INT32),
    Operand("committed", "B", INT32),
)


def check(
    staging: Sequence[torch.Tensor],
    pool: torch.Tensor,
    page_table: torch.Tensor,
    twin: torch.Tensor | None,
    twin_table: torch.Tensor | None,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    twin_scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> dict[str, Any]:
    """Check shapes and dtypes, and that the fields make up the pages of both pools; return the sizes."""
    row = Fields(fields, staging, scales, twin_scales)
    tensors = (pool, page_table, twin, twin_table, lengths, committed, *row.tensors)
    sizes = bind(NAME, (*OPERANDS, *row.operands(NAME)), tensors)
    given = {"twin": twin, "twin_table": twin_table}
    row.check(NAME, pool, given, (encoding, twin_encoding), tokens_per_page, (first, last, unit))
    check_writable(NAME, staging)
    return sizes


def check_values(
    staging: Sequence[torch.Tensor],
    pool: torch.Tensor,
    page_table: torch.Tensor,
    twin: torch.Tensor | None,
    twin_table: torch.Tensor | None,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    *_scales: Any,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Pages lie in their pools, lengths in the tables and in staging."""
    check_range(NAME, "page_table", page_table, -1, pool.shape[0])
    if twin is not None and twin_table is not None:
        check_range(NAME, "twin_table", twin_table, -1, twin.shape[0])
    longest = page_table.shape[1] * tokens_per_page
    check_range(NAME, "lengths", lengths, 0, longest + 1)
    check_range(NAME, "committed", committed, 0, longest + 1)
    check_room(NAME, staging, "lengths", lengths)


def fake(*tensors: Any, **_: Any) -> None:
    """Nothing is returned."""
