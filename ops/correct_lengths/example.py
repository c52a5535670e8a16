"""Example call of kvc::correct_lengths."""

import torch

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape

SCHEDULED = 3


def example(shape: Shape) -> Example:
    """The sequences of a shape in reverse row order; every second one was not in the step in flight."""
    assumed = inputs.committed(shape) + SCHEDULED
    rows = torch.arange(len(assumed), dtype=torch.int32)
    idle = rows % 2 == 1
    scheduled = torch.full_like(rows, SCHEDULED).masked_fill(idle, 0)
    accepted = (rows % (SCHEDULED + 1)).flip(0)
    return (assumed, scheduled, rows.flip(0).masked_fill(idle, -1), accepted), {}
