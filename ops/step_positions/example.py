"""Example call of kvc::step_positions."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """The step of a shape."""
    return (inputs.committed(shape), inputs.query_starts(shape), inputs.sequence_ids(shape)), {}
