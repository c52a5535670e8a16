"""Definition, checks and fake kernel of kvc::write_back."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import BYTES, INT32, Operand, bind
from kvc.ops.mixed import TWIN, TWIN_ROWS
from kvc.ops.staging import Fields, check_places
from kvc.ops.values import check_write_rows
from kvc.ops.write_back.reference import written

NAME = "write_back"
# `positions` and `sequence_ids` are needed: they are optional here so that a call without them is refused by name.
DEFINITION = (
    f"{NAME}(Tensor(a!) pool, Tensor(b!)? twin, Tensor[] staging, Tensor? positions, Tensor? sequence_ids, "
    "Tensor rows, Tensor? twin_rows, Tensor?[] scales, Tensor?[] twin_scales, *, str encoding, str[] fields, "
    "int tokens_per_page, str? twin_encoding=None) -> ()"
)
OPERANDS = (
    Operand("pool", "P page_bytes", BYTES),
    TWIN,
    Operand("positions", "T", INT32),
    Operand("sequence_ids", "T", INT32),
    Operand("rows", "T", INT32),
    TWIN_ROWS,
)


def check(
    pool: torch.Tensor,
    twin: torch.Tensor | None,
    staging: Sequence[torch.Tensor],
    positions: torch.Tensor | None,
    sequence_ids: torch.Tensor | None,
    rows: torch.Tensor,
    twin_rows: torch.Tensor | None,
    scales: Sequence[torch.Tensor | None],
    twin_scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    twin_encoding: str | None = None,
) -> dict[str, Any]:
    """Check shapes and dtypes, and that the fields make up the pages of both pools; return the sizes."""
    row = Fields(fields, staging, scales, twin_scales)
    tensors = (pool, twin, positions, sequence_ids, rows, twin_rows, *row.tensors)
    sizes = bind(NAME, (*OPERANDS, *row.operands(NAME)), tensors)
    row.check(NAME, pool, {"twin": twin, "twin_rows": twin_rows}, (encoding, twin_encoding), tokens_per_page)
    return sizes


def check_values(
    pool: torch.Tensor,
    twin: torch.Tensor | None,
    staging: Sequence[torch.Tensor],
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    rows: torch.Tensor,
    twin_rows: torch.Tensor | None,
    *_scales: Any,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Write rows lie in their pools and differ; every row that is written has its place in staging."""
    check_write_rows(NAME, rows, pool.shape[0] * tokens_per_page)
    if twin is not None and twin_rows is not None:
        check_write_rows(NAME, twin_rows, twin.shape[0] * tokens_per_page, "twin_rows")
    check_places(NAME, staging, positions, sequence_ids, written(rows, twin_rows))


def fake(*tensors: Any, **_: Any) -> None:
    """Nothing is returned."""
