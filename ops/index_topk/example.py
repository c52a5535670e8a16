"""Example call of kvc::index_topk."""

from kvc.ops import example_inputs as inputs
from kvc.ops import sparse_inputs as sparse
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """The best rows of every token of a step, out of all that its sequence holds."""
    step = inputs.page_table(shape), inputs.positions(shape), inputs.sequence_ids(shape)
    args = sparse.index_query(shape), sparse.index_weights(shape), sparse.index_pool(shape), *step
    how = {"encoding": sparse.index_encoding(shape), "tokens_per_page": shape.tokens_per_page, "top_k": shape.top_k}
    return args, {**how, "score_scale": shape.index_dim**-0.5}
