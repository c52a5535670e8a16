"""Example call of kvc::gqa_decode."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """As many query tokens for every sequence as its shortest own part has."""
    tokens = len(shape.own) * min(shape.own)
    cache = inputs.pool(shape), inputs.page_table(shape), inputs.lengths(shape)
    scales = inputs.scale_for(shape.encoding, "k"), inputs.scale_for(shape.encoding, "v")
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page}
    sizes = {"kv_heads": shape.kv_heads, "v_head_dim": shape.v_head_dim, "softmax_scale": shape.head_dim**-0.5}
    return (inputs.activations(shape, "q", tokens), *cache, *scales), {**how, **sizes}
