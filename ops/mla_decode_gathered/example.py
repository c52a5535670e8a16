"""Example call of kvc::mla_decode_gathered."""

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Example, Shape, lengths, page_table


def example(shape: Shape) -> Example:
    """As many query tokens for every sequence as its shortest own part has."""
    tokens = len(shape.own) * min(shape.own)
    queries = inputs.query(shape, "latent", tokens), inputs.query(shape, "rope", tokens)
    how = {"tokens_per_page": shape.tokens_per_page, "softmax_scale": (shape.nope_dim + shape.rope_dim) ** -0.5}
    return (*queries, inputs.gathered(shape), page_table(shape), lengths(shape)), how
