"""Example call of kvc::mla_context."""

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Example, Shape, committed, query_starts, scale_for
from kvc.ops.expand_mla.reference import expand_mla


def example(shape: Shape) -> Example:
    """A chunk of every sequence on top of its committed rows; in fp8, V transposed, where the shape's cache is fp8."""
    queries, weights = (inputs.query(shape, "nope"), inputs.query(shape, "rope")), inputs.weights(shape)
    is_fp8 = shape.encoding == "fp8"
    scales = [scale_for("fp8", field) if is_fp8 else None for field in "qkv"]
    layout = "transposed" if is_fp8 else "rows"
    starts = query_starts(shape) if is_fp8 else None
    rows = inputs.latent(shape), inputs.k_rope(shape)
    own = expand_mla(*rows, *weights, starts, scales[1], scales[2], v_layout=layout)
    step = *inputs.cache(shape), committed(shape), query_starts(shape)
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "v_layout": layout}
    sizes = {"chunk_tokens": shape.tokens_per_page, "softmax_scale": (shape.nope_dim + shape.rope_dim) ** -0.5}
    return (*queries, *own, *step, *weights, *inputs.scales(shape), *scales), {**how, **sizes}
