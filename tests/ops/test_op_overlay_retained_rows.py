"""kvc::overlay_retained_rows and which rows are retained, against a loop over single rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape
from kvc.ops.retained import Retained

overlay = torch.ops.kvc.overlay_retained_rows.default
gather = torch.ops.kvc.gather_rows.default


def is_retained(position, committed, first, last, unit, size):
    """The rule in words: docs/semantics.md."""
    if position >= committed:
        return True
    if unit == "token":
        return position < first or position >= committed - last
    page = position // size
    return committed <= last or page * size < first or page >= (committed - last) // size


@given(
    st.integers(0, 70),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from(["token", "page"]),
    st.sampled_from([1, 4, 16]),
)
@settings(deadline=None, max_examples=200)
def test_the_retained_set(committed, first, last, unit, size):
    mask = Retained(first, last, unit, size).mask(torch.tensor([committed]).int(), 80)[0]
    assert mask.tolist() == [is_retained(p, committed, first, last, unit, size) for p in range(80)]


@pytest.mark.parametrize("unit", ["token", "page"])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 6), (16, 0), (0, 40), (1000, 1000)])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_a_loop(shape, first, last, unit):
    (rows, twin, table, lengths, committed, scales), how = OPS["overlay_retained_rows"].example(SHAPES[shape])
    how |= {"first": first, "last": last, "unit": unit}
    size = how["tokens_per_page"]
    over = overlay(rows, twin, table, lengths, committed, scales, **how)
    dims = {"heads": [x.shape[2] for x in rows], "dims": [x.shape[3] for x in rows], "fields": how["fields"]}
    where = {"encoding": how["encoding"], "tokens_per_page": size, "dtype": rows[0].dtype}
    high = gather(twin, table, lengths, scales, **dims, **where)
    for b, (length, done) in enumerate(zip(lengths.tolist(), committed.tolist(), strict=True)):
        for p in range(rows[0].shape[1]):
            held = p // size < table.shape[1] and int(table[b, p // size]) >= 0
            taken = p < length and held and is_retained(p, done, first, last, unit, size)
            for got, low, twin_rows in zip(over, rows, high, strict=True):
                assert torch.equal(got[b, p], (twin_rows if taken else low)[b, p]), (b, p)


def test_a_twin_that_holds_nothing_changes_nothing():
    (rows, twin, table, *rest), how = OPS["overlay_retained_rows"].example(Shape())
    over = overlay(rows, twin, torch.full_like(table, -1), *rest, **how)
    assert all(torch.equal(a, b) and a.data_ptr() != b.data_ptr() for a, b in zip(over, rows, strict=True))
