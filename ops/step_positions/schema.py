"""Definition, checks and fake kernel of kvc::step_positions."""

from typing import Any

import torch

from kvc.ops.axes import INT32, Operand, bind
from kvc.ops.values import check_range

DEFINITION = "step_positions(Tensor committed, Tensor query_starts, Tensor sequence_ids) -> (Tensor, Tensor)"
OPERANDS = (
    Operand("committed", "B", INT32),
    Operand("query_starts", "B+1", INT32),
    Operand("sequence_ids", "T", INT32),
)


def check(committed: torch.Tensor, query_starts: torch.Tensor, sequence_ids: torch.Tensor) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    return bind("step_positions", OPERANDS, (committed, query_starts, sequence_ids))


def check_values(committed: torch.Tensor, query_starts: torch.Tensor, sequence_ids: torch.Tensor) -> None:
    """Sequences exist."""
    check_range("step_positions", "sequence_ids", sequence_ids, -1, committed.shape[0])


def fake(
    committed: torch.Tensor, query_starts: torch.Tensor, sequence_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    return sequence_ids.new_empty(sequence_ids.shape), committed.new_empty(committed.shape)
