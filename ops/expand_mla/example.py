"""Example call of kvc::expand_mla."""

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Example, Shape, query_starts, scale_for


def example(shape: Shape) -> Example:
    """This step's tokens; straight to fp8 and transposed where the shape's cache is fp8."""
    rows = inputs.latent(shape), inputs.k_rope(shape), *inputs.weights(shape)
    if shape.encoding != "fp8":
        return (*rows, None, None, None), {}
    scales = scale_for("fp8", "k"), scale_for("fp8", "v")
    return (*rows, query_starts(shape), *scales), {"v_layout": "transposed"}
