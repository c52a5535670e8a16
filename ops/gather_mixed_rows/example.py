"""Example call of kvc::gather_mixed_rows."""

from kvc.ops import twin_inputs as twins
from kvc.ops.example_inputs import Example, Shape, committed, lengths, page_table, pool


def example(shape: Shape) -> Example:
    """K and V of every sequence, retained rows from the twin."""
    pools = pool(shape), page_table(shape), twins.pool(shape), twins.table(shape)
    scales = twins.scales(shape.encoding), twins.scales(twins.ENCODING)
    how = {"encoding": shape.encoding, "twin_encoding": twins.ENCODING, "dtype": shape.dtype, **twins.sizes(shape)}
    attributes = {**how, **twins.RETAINED, "tokens_per_page": shape.tokens_per_page}
    return (*pools, lengths(shape), committed(shape), *scales), attributes
