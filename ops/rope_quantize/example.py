"""Example call of kvc::rope_quantize."""

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """Rotate and encode the keys of a step."""
    scale = inputs.scale_for(shape.encoding, "k")
    args = inputs.activations(shape, "k"), inputs.table(shape), inputs.positions(shape), scale
    return args, {"encoding": shape.encoding, "layout": shape.layout}
