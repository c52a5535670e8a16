"""Example call of kvc::append_mla."""

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Example, Shape, positions, rows, table


def example(shape: Shape) -> Example:
    """Append the tokens of a step to a pool full of 0xFF."""
    fields = inputs.query(shape, "rope"), inputs.latent(shape), inputs.k_rope(shape)
    args = inputs.empty_pool(shape), *fields, table(shape), positions(shape), rows(shape), *inputs.scales(shape)
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "layout": shape.layout}
    return args, {**how, "keep_k": True}
