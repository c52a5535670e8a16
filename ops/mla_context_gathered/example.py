"""Example call of kvc::mla_context_gathered."""

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Example, Shape
from kvc.ops.mla_context.example import example as paged


def example(shape: Shape) -> Example:
    """A chunk of every sequence on top of its committed rows; in fp8, V transposed, where the shape's cache is fp8."""
    args, how = paged(shape)
    queries_and_own, (_pool, *step), weights, scales = args[:4], args[4:8], args[8:10], args[12:]
    return (*queries_and_own, inputs.gathered(shape), *step, *weights, *scales), {
        name: value for name, value in how.items() if name != "encoding"
    }
