"""Example call of kvc::stage_history."""

from kvc.ops import twin_inputs as twins
from kvc.ops.example_inputs import Example, Shape, committed, lengths, page_table, pool


def example(shape: Shape) -> Example:
    """K and V of every sequence, retained rows from the twin, into staging full of NaN."""
    history, twin = (pool(shape), page_table(shape)), (twins.pool(shape), twins.table(shape))
    scales = twins.scales(shape.encoding), twins.scales(twins.ENCODING)
    how = {"encoding": shape.encoding, "twin_encoding": twins.ENCODING, "fields": twins.KV_FIELDS}
    args = (twins.empty_staging(shape), *history, *twin, lengths(shape), committed(shape), *scales)
    return args, {**how, **twins.RETAINED, "tokens_per_page": shape.tokens_per_page}
