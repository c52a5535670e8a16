"""Example call of kvc::gqa_context_gathered."""

from kvc.ops import example_inputs as inputs
from kvc.ops import twin_inputs as twins
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """A chunk of every sequence on top of its committed rows."""
    own = (inputs.activations(shape, name) for name in ("q", "k", "v"))
    step = inputs.page_table(shape), inputs.committed(shape), inputs.query_starts(shape)
    how = {"tokens_per_page": shape.tokens_per_page, "softmax_scale": shape.head_dim**-0.5}
    return (*own, twins.gathered(shape), *step), how
