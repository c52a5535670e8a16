"""kvc::place_own_rows: rows committed before a step and its own ones together, bit for bit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_calls import Cache, same

from kvc.ops import OPS, mla_inputs
from kvc.ops.example_inputs import SHAPES, Shape, positions, scale_for, sequence_ids

place = torch.ops.kvc.place_own_rows.default
STEP = Shape(committed=(40, 0, 16), own=(5, 3, 1), padding=2, dtype=torch.float32, encoding="fp32")


def own_rows(shape):
    return [mla_inputs.latent(shape), mla_inputs.k_rope(shape)]


@pytest.mark.parametrize("encoding", ["fp32", "fp8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_a_loop(shape, encoding):
    (rows, own, place_in, ids, scale), _ = OPS["place_own_rows"].example(replace(SHAPES[shape], encoding=encoding))
    want, given_rows = [x.clone() for x in rows], [x.clone() for x in rows]
    for t, (sequence, position) in enumerate(zip(ids.tolist(), place_in.tolist(), strict=True)):
        for x, values in zip(want, own, strict=True):
            if sequence >= 0:
                codes = values[t] if scale is None else torch.ops.kvc.quantize_fp8.default(values[t], scale)
                x[sequence, position] = codes
    found = place(rows, own, place_in, ids, scale)
    assert same(found, want) and same(rows, given_rows) and not same(found, rows)


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_what_a_cache_holds_after_the_step(data):
    """A cache stores these rows without loss (fp32) or as codes under this scale (fp8): then placing is reading."""
    encoding = data.draw(st.sampled_from(["fp32", "fp8"]))
    own = tuple(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    committed = tuple(data.draw(st.integers(0, 30)) for _ in own)
    sizes = {"tokens_per_page": data.draw(st.sampled_from([1, 4, 16])), "padding": data.draw(st.integers(0, 2))}
    shape = replace(STEP, committed=committed, own=own, encoding=encoding, **sizes)
    cache = Cache(shape)
    after = cache.gather(codes=encoding == "fp8")
    cache.lengths = cache.committed
    every = replace(shape, committed=(0,) * len(own), own=shape.lengths, padding=0)
    places = positions(every), sequence_ids(every)
    step = torch.cat([places[0][places[1] == b] >= committed[b] for b in range(len(own))])
    computed = [x[step] for x in own_rows(every)]
    scale = scale_for("fp8", "latent") if encoding == "fp8" else None
    assert same(place(cache.gather(codes=encoding == "fp8"), computed, *(x[step] for x in places), scale), after)


def test_values_of_bf16_stay_as_they_are():
    """NaN and Inf of an own row too, which the row keeps to itself."""
    shape = replace(STEP, dtype=torch.bfloat16)
    own = own_rows(shape)
    own[0][1, 0, 3], own[1][2] = torch.nan, torch.inf
    rows = [torch.zeros(3, 48, 1, x.shape[2], dtype=torch.bfloat16) for x in own]
    found = place(rows, own, positions(shape), sequence_ids(shape))
    assert found[0].isnan().nonzero().tolist() == [[0, 41, 0, 3]] and torch.equal(found[1][0, 42], own[1][2])
    assert [int(x.any(-1).sum()) for x in found] == [9, 9], "the padding is nowhere"


def test_no_token_and_no_sequence():
    rows, own = [torch.ones(2, 3, 1, 4)], [torch.zeros(0, 1, 4)]
    nobody = torch.zeros(0, dtype=torch.int32)
    assert same(place(rows, own, nobody, nobody), rows)
    padding = torch.full((2,), -1, dtype=torch.int32)
    (found,) = place([rows[0][:0]], [torch.zeros(2, 1, 4)], padding, padding)
    assert found.shape == (0, 3, 1, 4)
    assert same(place(rows, [torch.zeros(2, 1, 4)], padding, padding), rows)


@pytest.mark.parametrize("codes", [False, True])
def test_a_sparse_context_step_is_attention_over_the_cache(codes):
    """Gather what was committed, place the rest, select everything: generation's attention on what is then stored."""
    shape = replace(STEP, committed=(40, 16, 3), own=(4, 4, 4), padding=0, encoding="fp8" if codes else "fp32")
    cache = Cache(shape)
    queries = mla_inputs.query(shape, "latent"), mla_inputs.query(shape, "rope")
    scale = scale_for("fp8", "latent") if codes else None
    how = {"tokens_per_page": 16, "softmax_scale": 0.14}
    stored = cache.pool, cache.table, cache.lengths, scale, scale
    want = torch.ops.kvc.mla_decode.default(*queries, *stored, encoding=shape.encoding, **how)
    values = cache.gather()  # those of the whole cache: its own rows are what the step computed
    ids, where = sequence_ids(shape), positions(shape)
    own = [x[ids.long(), where.long()] for x in values]
    cache.lengths = cache.committed
    rows = place(cache.gather(codes=codes), own, where, ids, scale)
    selected = torch.arange(48).int().expand(12, -1)
    found = torch.ops.kvc.mla_sparse.default(
        *queries, *rows, selected, where, ids, cache.table, scale, rows_of="sequence", **how
    )
    for got, expected in zip(found, want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
