"""Example call of kvc::store_retained_rows."""

from dataclasses import replace

from kvc.ops import example_inputs as inputs
from kvc.ops import twin_inputs as twins
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """K before RoPE and V of a step, into a twin full of 0xFF."""
    values = [inputs.activations(shape, "k"), inputs.activations(shape, "v")]
    pool = inputs.empty_pool(replace(shape, encoding=twins.ENCODING))
    step = inputs.rows(shape), inputs.table(shape), inputs.positions(shape), twins.scales(twins.ENCODING)
    how = {"encoding": twins.ENCODING, "fields": twins.KV_FIELDS, "tokens_per_page": shape.tokens_per_page}
    return (pool, values, *step), {**how, "rotated": "k", "layout": shape.layout}
