"""Example call of kvc::gqa_decode_gathered."""

from kvc.ops import example_inputs as inputs
from kvc.ops import twin_inputs as twins
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """As many query tokens for every sequence as its shortest own part has."""
    q = inputs.activations(shape, "q", len(shape.own) * min(shape.own))
    how = {"tokens_per_page": shape.tokens_per_page, "softmax_scale": shape.head_dim**-0.5}
    return (q, twins.gathered(shape), inputs.page_table(shape), inputs.lengths(shape)), how
