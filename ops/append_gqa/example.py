"""Example call of kvc::append_gqa."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """Append the tokens of a step to a pool full of 0xFF."""
    q, k, v = (inputs.activations(shape, name) for name in ("q", "k", "v"))
    scales = inputs.scale_for(shape.encoding, "k"), inputs.scale_for(shape.encoding, "v")
    step = inputs.table(shape), inputs.positions(shape), inputs.rows(shape)
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "layout": shape.layout}
    return (inputs.empty_pool(shape), q, k, v, *step, *scales), {**how, "keep_k": True}
