"""Example call of kvc::rope."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """Rotate the queries of a step."""
    return (inputs.activations(shape, "q"), inputs.table(shape), inputs.positions(shape)), {"layout": shape.layout}
