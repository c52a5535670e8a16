"""Example call of kvc::store_rows."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """Store the encoded K and V of a step into a pool full of 0xFF."""
    args = inputs.empty_pool(shape), inputs.planes(shape), inputs.rows(shape)
    return args, {"tokens_per_page": shape.tokens_per_page}
