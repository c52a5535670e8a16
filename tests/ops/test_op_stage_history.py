"""kvc::stage_history is gather, then overlay, written below the lengths; every other row of staging keeps its bits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_calls import LATENT_PAIRS, PAIRS, batches

from kvc.ops import OPS
from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape

ops = torch.ops.kvc
stage = ops.stage_history.default


def poisoned(case, extra=(0, 3)):
    """Staging of NaN for a batch, with more sequences and rows than it needs."""
    sequences, rows = len(case.shape.own) + extra[0], max(case.shape.lengths) + extra[1]
    sizes = zip(case.sizes["heads"], case.sizes["dims"], strict=True)
    return [torch.full((sequences, rows, *size), torch.nan, dtype=case.shape.dtype) for size in sizes]


def call(case, staging, lengths, twin=True):
    """Stage a batch; without its twin, the history alone."""
    encoding, committed = case.shape.encoding, inputs.committed(case.shape)
    how = {"encoding": encoding, "fields": list(case.fields), "tokens_per_page": case.shape.tokens_per_page}
    pools = case.pool(encoding), case.table, *((case.pool(case.twin), case.twin_table) if twin else (None, None))
    scales = case.scales(encoding), case.scales(case.twin) if twin else [None, None]
    stage(staging, *pools, lengths, committed, *scales, **how, **(case.how if twin else {}))


def gathered(case, lengths, twin=True):
    """What the two ops give in the dtype of the activations, one after the other."""
    encoding, size = case.shape.encoding, case.shape.tokens_per_page
    how = {"encoding": encoding, "tokens_per_page": size, "dtype": case.shape.dtype}
    rows = ops.gather_rows.default(case.pool(encoding), case.table, lengths, case.scales(encoding), **how, **case.sizes)
    if not twin:
        return rows
    args = rows, case.pool(case.twin), case.twin_table, lengths, inputs.committed(case.shape), case.scales(case.twin)
    kept = {"first": case.first, "last": case.last, "unit": case.unit, "encoding": case.twin}
    return ops.overlay_retained_rows.default(*args, **kept, fields=list(case.fields), tokens_per_page=size)


def check_rows(staging, rows, lengths):
    """Row by row: those below the length are the gathered ones, the others are as `poisoned` made them."""
    for x, values in zip(staging, rows, strict=True):
        bits = x.contiguous().view(torch.uint8)
        untouched = torch.full_like(x[0, 0], torch.nan).view(torch.uint8)
        for b in range(len(x)):
            length = int(lengths[b]) if b < len(lengths) else 0
            assert torch.equal(bits[b, :length], values.view(torch.uint8)[b if length else 0, :length])
            assert all(torch.equal(row, untouched) for row in bits[b, length:])


@pytest.mark.parametrize(("kind", "pairs"), [("gqa", PAIRS), ("mla", LATENT_PAIRS)])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_equals_gather_then_overlay_in_both_phases(kind, pairs, data):
    case = data.draw(batches(kind, pairs, uniform=False))
    phase, twin = data.draw(st.sampled_from([inputs.committed, inputs.lengths])), data.draw(st.booleans())
    staging = poisoned(case, (data.draw(st.integers(0, 2)), data.draw(st.integers(0, 3))))
    lengths = phase(case.shape)
    call(case, staging, lengths, twin)
    check_rows(staging, gathered(case, lengths, twin), lengths)


@pytest.mark.parametrize("shape", SHAPES)
def test_staging_may_lie_anywhere(shape):
    """Rows of a wider tensor, sequences far apart, L before the sequences: engines keep staging as they like."""
    args, how = OPS["stage_history"].example(SHAPES[shape])
    _, again = OPS["stage_history"].example(SHAPES[shape])
    stage(*args, **how)
    plain = args[0]
    wide = [
        torch.full((x.shape[1], 2 * x.shape[0], x.shape[2], x.shape[3] + 5), torch.nan, dtype=x.dtype) for x in plain
    ]
    views = [x[:, ::2, :, 5:].transpose(0, 1) for x in wide]
    stage(views, *args[1:], **again)
    for view, x in zip(views, plain, strict=True):
        assert torch.equal(view.contiguous().view(torch.uint8), x.contiguous().view(torch.uint8))


def test_padding_sequences_need_no_staging():
    """The rows of a bucket: sequences of length 0 without a page, behind those that staging has."""
    args, how = OPS["stage_history"].example(Shape())
    staging, pool, table, twin, twin_table, lengths, committed, *scales = args
    none, zero = torch.full_like(table[:2], -1), torch.zeros_like(lengths[:2])
    padded = torch.cat((table, none)), twin, torch.cat((twin_table, none)), torch.cat((lengths, zero))
    stage(staging, pool, *padded, torch.cat((committed, zero)), *scales, **how)
    other, _ = OPS["stage_history"].example(Shape())
    stage(*other, **how)
    for x, y in zip(staging, other[0], strict=True):
        assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def test_a_row_that_nothing_holds_is_staged_as_zeros():
    args, how = OPS["stage_history"].example(Shape())
    args[2].fill_(-1)
    args[4].fill_(-1)
    stage(*args, **how)
    assert all(torch.count_nonzero(x[b, :length]) == 0 for x in args[0] for b, length in enumerate(Shape().lengths))
