"""Example call of kvc::copy_page_tables."""

import torch

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """Two lifecycles, three pools."""
    slots = inputs.page_table(shape)
    return (torch.stack([slots, slots.flip(0)]),), {
        "lifecycles": [0, 1, 0],
        "pages_per_slot": [4, 1, 3],
        "offsets": [0, 0, 2],
    }
