"""kvc::append_gqa equals rope, quantize and store_rows, byte for byte."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from mixed_calls import PAIRS, Mixed, batches, write_rows
from op_oracles import GQA_ENCODINGS, row_planes

from kvc.diagnostics import KvcError
from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

ops = torch.ops.kvc


@pytest.mark.parametrize("with_rope", [True, False])
@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_ops_it_fuses(shape, encoding, with_rope):
    args, kwargs = OPS["append_gqa"].example(replace(SHAPES[shape], encoding=encoding))
    pool, q, k, v, table, positions, rows, k_scale, v_scale = args
    angles = (table, positions) if with_rope else (None, None)
    expected = pool.clone()
    turned = [ops.rope.default(x, table, positions, layout=kwargs["layout"]) if with_rope else x for x in (q, k)]
    planes = row_planes(encoding, (turned[1], v), (k_scale, v_scale))
    ops.store_rows.default(expected, planes, rows, tokens_per_page=kwargs["tokens_per_page"])
    if not with_rope:
        del kwargs["layout"]
    found = ops.append_gqa.default(pool, q, k, v, *angles, *args[6:], **kwargs)
    assert torch.equal(pool, expected)
    assert torch.equal(found[0], turned[0]) and torch.equal(found[1], turned[1])
    assert found[0].data_ptr() != q.data_ptr() and found[1].data_ptr() != k.data_ptr()


def test_a_layout_without_a_table_is_refused():
    args, kwargs = OPS["append_gqa"].example(Shape())
    with pytest.raises(KvcError, match="KVC551 kvc::append_gqa: layout: goes with table"):
        ops.append_gqa.default(*args[:4], None, None, *args[6:], **kwargs)


def test_k_is_returned_only_where_asked_for():
    args, kwargs = OPS["append_gqa"].example(Shape())
    other, _ = OPS["append_gqa"].example(Shape())
    _, k = ops.append_gqa.default(*args, **kwargs)
    q, empty = ops.append_gqa.default(*other, **{**kwargs, "keep_k": False})
    assert k.shape == (6, 2, 32) and empty.shape == (0, 2, 32) and q.shape == (6, 4, 32)
    assert torch.equal(args[0], other[0])


def test_without_q_the_same_bytes_are_stored():
    args, kwargs = OPS["append_gqa"].example(Shape())
    other, _ = OPS["append_gqa"].example(Shape())
    _, expected = ops.append_gqa.default(*args, **kwargs)
    q, k = ops.append_gqa.default(other[0], None, *other[2:], **kwargs)
    assert torch.equal(args[0], other[0]) and torch.equal(k, expected) and q.shape == (0, 2, 32)


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
def test_bytes_do_not_depend_on_the_chunking(encoding):
    shape = Shape(committed=(0,), own=(50,), encoding=encoding)
    args, kwargs = OPS["append_gqa"].example(shape)
    chunked = args[0].clone()
    ops.append_gqa.default(*args, **kwargs)
    for start, end in ((0, 1), (1, 17), (17, 50)):
        parts = [tensor[start:end] if i in (1, 2, 3, 5, 6) else tensor for i, tensor in enumerate(args)]
        ops.append_gqa.default(chunked, *parts[1:], **kwargs)
    assert torch.equal(args[0], chunked)


@settings(max_examples=40, deadline=None)
@given(batches("gqa", PAIRS, uniform=False))
def test_the_twin_gets_the_rows_of_store_retained_rows(case):
    args, how = OPS["append_gqa"].example(case.shape)
    plain, _ = OPS["append_gqa"].example(case.shape)
    twin, alone = (torch.full_like(case.pool(case.twin), 0xFF) for _ in range(2))
    rows, scales = write_rows(case.shape, case.twin_table), case.scales(case.twin)
    q, k = ops.append_gqa.default(*args, twin, rows, *scales, **how, twin_encoding=case.twin)
    expected = ops.append_gqa.default(*plain, **how)
    assert torch.equal(q, expected[0]) and torch.equal(k, expected[1]) and torch.equal(args[0], plain[0])
    stored = {"encoding": case.twin, "fields": list(case.fields), "tokens_per_page": case.shape.tokens_per_page}
    rotation = {"rotated": "k", "layout": how["layout"]}
    ops.store_retained_rows.default(alone, list(args[2:4]), rows, *args[4:6], scales, **stored, **rotation)
    assert torch.equal(twin, alone)


def test_a_bad_row_of_the_twin_leaves_both_pools_alone():
    case = Mixed(Shape(), "bf16", 3, 6, "token", kind="gqa")
    args, how = OPS["append_gqa"].example(case.shape)
    twin, before = case.pool("bf16"), args[0].clone()
    untouched = twin.clone()
    for rows, code in ((torch.full_like(args[6], 3), "KVC553"), (args[6] + 10**6, "KVC552")):
        with pytest.raises(KvcError, match=f"{code} kvc::append_gqa: twin_rows"):
            ops.append_gqa.default(*args, twin, rows, None, None, **how, twin_encoding="bf16")
    assert torch.equal(args[0], before) and torch.equal(twin, untouched)


def test_codes_of_the_history_are_no_values_for_a_twin():
    case = Mixed(Shape(), "bf16", 3, 6, "token", kind="gqa")
    args, how = OPS["append_gqa"].example(case.shape)
    args = list(args)
    args[3] = ops.quantize_fp8.default(args[3], args[8])
    with pytest.raises(KvcError, match="holds codes of the history"):
        ops.append_gqa.default(*args, case.pool("bf16"), args[6], None, None, **how, twin_encoding="bf16")
