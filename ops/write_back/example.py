"""Example call of kvc::write_back."""

from dataclasses import replace

from kvc.ops import example_inputs as inputs
from kvc.ops import twin_inputs as twins
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """K and V of a step, out of staging, into two pools full of 0xFF."""
    pools = inputs.empty_pool(shape), inputs.empty_pool(replace(shape, encoding=twins.ENCODING))
    step = inputs.positions(shape), inputs.sequence_ids(shape), inputs.rows(shape), inputs.rows(shape)
    scales = twins.scales(shape.encoding), twins.scales(twins.ENCODING)
    how = {"encoding": shape.encoding, "twin_encoding": twins.ENCODING, "fields": twins.KV_FIELDS}
    return (*pools, twins.staging(shape), *step, *scales), {**how, "tokens_per_page": shape.tokens_per_page}
