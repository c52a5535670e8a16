"""Definition, checks and fake kernel of kvc::correct_lengths."""

from typing import Any

import torch

from kvc.diagnostics import fail
from kvc.ops.axes import INT32, Operand, bind
from kvc.ops.values import check_range

DEFINITION = "correct_lengths(Tensor committed, Tensor scheduled, Tensor accepted_rows, Tensor accepted) -> Tensor"
OPERANDS = (
    Operand("committed", "B", INT32),
    Operand("scheduled", "B", INT32),
    Operand("accepted_rows", "B", INT32),
    Operand("accepted", "A", INT32),
)


def check(
    committed: torch.Tensor, scheduled: torch.Tensor, accepted_rows: torch.Tensor, accepted: torch.Tensor
) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    return bind("correct_lengths", OPERANDS, (committed, scheduled, accepted_rows, accepted))


def check_values(
    committed: torch.Tensor, scheduled: torch.Tensor, accepted_rows: torch.Tensor, accepted: torch.Tensor
) -> None:
    """Rows exist, no sequence had more tokens accepted than scheduled or scheduled than it has; others are not read."""
    check_range("correct_lengths", "accepted_rows", accepted_rows, -1, accepted.shape[0])
    numbers = (committed.tolist(), scheduled.tolist(), accepted_rows.tolist())
    for sequence, (length, count, row) in enumerate(zip(*numbers, strict=True)):
        if row < 0:
            continue
        if not 0 <= count <= length:
            message = f"scheduled[{sequence}] is {count}, expected 0 <= value <= committed[{sequence}] = {length}"
            raise fail("KVC552", f"kvc::correct_lengths: {message}")
        if not 0 <= (found := int(accepted[row])) <= count:
            message = f"accepted[{row}] is {found}, expected 0 <= value <= {count}, the tokens scheduled"
            raise fail("KVC552", f"kvc::correct_lengths: {message}", help="the sampler writes it before the next step")


def fake(
    committed: torch.Tensor, scheduled: torch.Tensor, accepted_rows: torch.Tensor, accepted: torch.Tensor
) -> torch.Tensor:
    """Empty results."""
    return committed.new_empty(committed.shape)
