"""Example call of kvc::project_heads."""

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """The nope part of the queries into the latent's space."""
    return (inputs.query(shape, "nope"), inputs.weights(shape)[0]), {}
