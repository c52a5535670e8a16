"""Example call of kvc::place_own_rows."""

from kvc.ops import example_inputs as inputs
from kvc.ops import mla_inputs, sparse_inputs
from kvc.ops.example_inputs import Example, Shape


def example(shape: Shape) -> Example:
    """A context step's rows into those committed before: codes where the cache is in fp8, else activations."""
    rows, code_scale = sparse_inputs.committed_rows(shape)
    own = [mla_inputs.latent(shape), mla_inputs.k_rope(shape)]
    return (rows, own, inputs.positions(shape), inputs.sequence_ids(shape), code_scale), {}
