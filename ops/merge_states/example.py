"""Example call of kvc::merge_states."""

import torch

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """Three parts, one of them empty for the first token."""
    out = torch.stack([inputs.activations(shape, "q").roll(i, 0) for i in range(3)])
    lse = out.float().mean(-1) * 8
    lse[1, :1] = -torch.inf
    return (out, lse), {}
