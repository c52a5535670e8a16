"""Example call of kvc::write_rows."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """The step of a shape."""
    args = inputs.page_table(shape), inputs.positions(shape), inputs.sequence_ids(shape)
    return args, {"tokens_per_page": shape.tokens_per_page}
