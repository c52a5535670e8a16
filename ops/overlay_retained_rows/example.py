"""Example call of kvc::overlay_retained_rows."""

from kvc.ops import twin_inputs as twins
from kvc.ops.example_inputs import Example, Shape, committed, lengths


def example(shape: Shape) -> Example:
    """The twin's K and V over those of the history."""
    step = twins.table(shape), lengths(shape), committed(shape)
    args = twins.gathered(shape), twins.pool(shape), *step, twins.scales(twins.ENCODING)
    how = {"encoding": twins.ENCODING, "fields": twins.KV_FIELDS, "tokens_per_page": shape.tokens_per_page}
    return args, {**how, **twins.RETAINED}
