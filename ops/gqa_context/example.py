"""Example call of kvc::gqa_context."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """A chunk of every sequence on top of its committed rows."""
    own = (inputs.activations(shape, name) for name in ("q", "k", "v"))
    cache = inputs.pool(shape), inputs.page_table(shape), inputs.committed(shape), inputs.query_starts(shape)
    scales = inputs.scale_for(shape.encoding, "k"), inputs.scale_for(shape.encoding, "v")
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page}
    return (*own, *cache, *scales), {**how, "softmax_scale": shape.head_dim**-0.5}
