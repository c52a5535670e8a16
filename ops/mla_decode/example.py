"""Example call of kvc::mla_decode."""

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Example, Shape, lengths


def example(shape: Shape) -> Example:
    """As many query tokens for every sequence as its shortest own part has."""
    tokens = len(shape.own) * min(shape.own)
    queries = inputs.query(shape, "latent", tokens), inputs.query(shape, "rope", tokens)
    scale = (shape.nope_dim + shape.rope_dim) ** -0.5
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "softmax_scale": scale}
    return (*queries, *inputs.cache(shape), lengths(shape), *inputs.scales(shape)), how
