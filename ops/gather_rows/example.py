"""Example call of kvc::gather_rows."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """Read K and V of every sequence."""
    scales = [inputs.scale_for(shape.encoding, "k"), inputs.scale_for(shape.encoding, "v")]
    args = inputs.pool(shape), inputs.page_table(shape), inputs.lengths(shape), scales
    heads, dims = [shape.kv_heads] * 2, [shape.head_dim, shape.v_head_dim]
    sizes = {"fields": ["k", "v"], "heads": heads, "dims": dims, "tokens_per_page": shape.tokens_per_page}
    return args, {"encoding": shape.encoding, "dtype": shape.dtype, **sizes}
