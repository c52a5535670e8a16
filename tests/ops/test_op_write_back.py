"""kvc::write_back is quantize, store_rows and store_retained_rows of the rows that staging holds, byte for byte."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_calls import LATENT_PAIRS, PAIRS, batches, write_rows

from kvc.diagnostics import KvcError
from kvc.ops import OPS
from kvc.ops import example_inputs as inputs
from kvc.ops import mla_inputs as latent
from kvc.ops.codecs import row_fields, row_format
from kvc.ops.example_inputs import Shape

ops = torch.ops.kvc
write_back = ops.write_back.default


def own_rows(case):
    """The step's rows, one tensor a field."""
    if case.kind == "mla":
        return [latent.latent(case.shape), latent.k_rope(case.shape)]
    return [inputs.activations(case.shape, field) for field in "kv"]


def staged(case):
    """Staging of NaN but for the step's own rows."""
    own, shape = own_rows(case), (len(case.shape.own), max(case.shape.lengths))
    place = inputs.sequence_ids(case.shape), inputs.positions(case.shape)
    staging = [torch.full((*shape, *x.shape[1:]), torch.nan, dtype=x.dtype) for x in own]
    for x, values in zip(staging, own, strict=True):
        for t, (b, position) in enumerate(zip(*place, strict=True)):
            if b >= 0:
                x[b, position] = values[t]
    return staging


def empty(case, encoding):
    """A pool of 0xFF."""
    return torch.full_like(case.pool(encoding), 0xFF)


def attributes(case):
    return {
        "encoding": case.shape.encoding,
        "fields": list(case.fields),
        "tokens_per_page": case.shape.tokens_per_page,
    }


def stored_apart(case, rows, twin_rows):
    """Both pools by the ops that encode and store."""
    size, encoding = case.shape.tokens_per_page, case.shape.encoding
    history, twin = empty(case, encoding), empty(case, case.twin)
    sizes = row_fields(case.fields, case.sizes["heads"], case.sizes["dims"])
    planes = row_format("test", encoding, sizes).encode(own_rows(case), case.scales(encoding))
    ops.store_rows.default(history, planes, rows, tokens_per_page=size)
    how = {"encoding": case.twin, "fields": list(case.fields), "tokens_per_page": size}
    ops.store_retained_rows.default(twin, own_rows(case), twin_rows, None, None, case.scales(case.twin), **how)
    return history, twin


@pytest.mark.parametrize(("kind", "pairs"), [("gqa", PAIRS), ("mla", LATENT_PAIRS)])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_equals_the_ops_apart(kind, pairs, data):
    case = data.draw(batches(kind, pairs, uniform=False))
    case = replace(case, shape=replace(case.shape, padding=data.draw(st.integers(0, 2))))
    rows, twin_rows = write_rows(case.shape, case.table), write_rows(case.shape, case.twin_table)
    step = inputs.positions(case.shape), inputs.sequence_ids(case.shape)
    encoding = case.shape.encoding
    history, twin = empty(case, encoding), empty(case, case.twin)
    scales = case.scales(encoding), case.scales(case.twin)
    how = attributes(case)
    write_back(history, twin, staged(case), *step, rows, twin_rows, *scales, **how, twin_encoding=case.twin)
    alone = empty(case, encoding)
    write_back(alone, None, staged(case), *step, rows, None, scales[0], [None, None], **how)
    expected = stored_apart(case, rows, twin_rows)
    assert torch.equal(history, expected[0]) and torch.equal(twin, expected[1]) and torch.equal(alone, expected[0])


def test_whole_rows_are_written_as_one_plane():
    """fp8_ds_mla joins the planes of a row."""
    shape = Shape(encoding="fp8_ds_mla", latent_dim=512, rope_dim=64)
    own = [latent.latent(shape), latent.k_rope(shape)]
    pool = latent.empty_pool(shape)
    planes = latent.row(shape).encode(own, [None, None])
    ops.store_rows.default(apart := pool.clone(), planes, inputs.rows(shape), tokens_per_page=16)
    staging = [torch.full((3, 40, *x.shape[1:]), torch.nan, dtype=x.dtype) for x in own]
    for x, values in zip(staging, own, strict=True):
        x[inputs.sequence_ids(shape).long(), inputs.positions(shape).long()] = values
    step = inputs.positions(shape), inputs.sequence_ids(shape), inputs.rows(shape), None
    how = {"encoding": "fp8_ds_mla", "fields": ["latent", "rope"], "tokens_per_page": 16}
    write_back(pool, None, staging, *step, [None, None], [None, None], **how)
    assert torch.equal(pool, apart)


def test_tokens_that_write_nothing_need_no_place():
    """Padding, and tokens whose pages are not held, may have any position and sequence."""
    args, how = OPS["write_back"].example(Shape(padding=2))
    nowhere = [args[0].clone(), args[1].clone(), args[2], args[3].clone(), args[4].clone(), *args[5:]]
    for i in (3, 4):
        nowhere[i][-2:] = 10**6
    write_back(*args, **how)
    write_back(*nowhere, **how)
    assert torch.equal(args[0], nowhere[0]) and torch.equal(args[1], nowhere[1])


def test_a_row_may_go_to_one_pool_alone():
    args, how = OPS["write_back"].example(Shape())
    history, twin, staging, positions, sequence_ids, rows, twin_rows, *scales = args
    rows, twin_rows = rows.clone(), twin_rows.clone()
    rows[::2], twin_rows[1::2] = -1, -1
    both = history.clone(), twin.clone()
    write_back(*both, staging, positions, sequence_ids, rows, twin_rows, *scales, **how)
    none = torch.full_like(rows, -1)
    write_back(history, twin, staging, positions, sequence_ids, rows, none, *scales, **how)
    write_back(history, twin, staging, positions, sequence_ids, none, twin_rows, *scales, **how)
    assert torch.equal(history, both[0]) and torch.equal(twin, both[1])


@pytest.mark.parametrize(
    ("index", "change", "code"),
    [
        (3, lambda _: None, "KVC551"),
        (4, lambda _: None, "KVC551"),
        (5, lambda rows: rows[:1].expand(len(rows)), "KVC553"),
        (6, lambda rows: rows[:1].expand(len(rows)), "KVC553"),
        (5, lambda rows: rows + 10**4, "KVC552"),
        (6, lambda rows: rows + 10**4, "KVC552"),
        (3, lambda positions: positions + 40, "KVC552"),
        (4, lambda ids: ids + 3, "KVC552"),
    ],
)
def test_what_is_refused_writes_neither_pool(index, change, code):
    args, how = OPS["write_back"].example(Shape())
    before, args = [x.clone() for x in args[:2]], list(args)
    args[index] = change(args[index])
    with pytest.raises(KvcError) as caught:
        write_back(*args, **how)
    assert caught.value.diagnostics[0].code == code
    assert all(torch.equal(x, was) for x, was in zip(args[:2], before, strict=True))
