"""Example call of kvc::mla_sparse."""

from kvc.ops import example_inputs as inputs
from kvc.ops import mla_inputs, sparse_inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """A generation step over gathered rows: codes where the cache is in fp8, else values of the activation dtype."""
    rows, row_scale = sparse_inputs.gathered(shape)
    queries = mla_inputs.query(shape, "latent"), mla_inputs.query(shape, "rope")
    step = inputs.positions(shape), inputs.sequence_ids(shape), inputs.page_table(shape)
    scale = (shape.nope_dim + shape.rope_dim) ** -0.5
    how = {"rows_of": "selection", "tokens_per_page": shape.tokens_per_page, "softmax_scale": scale}
    return (*queries, *rows, sparse_inputs.selected(shape), *step, row_scale), how
