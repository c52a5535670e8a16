"""Gathers of the rows that tokens select, and gathers to e4m3 codes: against picks from whole gathers, bit for bit."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_pools import FILLS, with_other_bytes
from op_variants import VARIANTS
from sparse_calls import ENCODINGS, KEPT, STEP, Cache, same, step
from test_op_overlay_retained_rows import is_retained

from kvc.diagnostics import KvcError
from kvc.ops import OPS
from kvc.ops.example_inputs import Shape, normal, scale_for
from kvc.ops.sparse_inputs import selected as select

ops = torch.ops.kvc
FAR = (-1, -2, -(2**31), 2**31 - 1, 10**6)  # no row
ALL = {"first": 1000, "last": 0, "unit": "token"}


@st.composite
def caches(draw):
    """A mixed cache with holes in both tables and a selection with repeats and positions of no row."""
    own = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    done = [draw(st.integers(0, 40)) for _ in own]
    sizes = {"tokens_per_page": draw(st.sampled_from([1, 4, 16])), "padding": draw(st.integers(0, 2))}
    encoding = draw(st.sampled_from(ENCODINGS))
    cache = Cache(step(encoding, replace(STEP, committed=tuple(done), own=tuple(own), **sizes)))
    holes = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    for table in (cache.table, cache.twin_table):
        table[torch.rand(table.shape, generator=holes) < 0.2] = -1
    positions = st.one_of(st.integers(-1, 45), st.sampled_from(FAR))
    top_k = draw(st.integers(0, 6))
    selected = [[draw(positions) for _ in range(top_k)] for _ in range(cache.shape.tokens)]
    return cache, torch.tensor(selected, dtype=torch.int32).reshape(cache.shape.tokens, top_k)


KEEPS = st.fixed_dictionaries(
    {"first": st.integers(0, 20), "last": st.integers(0, 20), "unit": st.sampled_from(["token", "page"])}
)


def picked(cache, selected, rows, table):
    """Rows ``[B, L, ...]`` at the selected positions, token by token; 0 where there is none."""
    out = torch.zeros((*selected.shape, *rows.shape[2:]), dtype=rows.dtype)
    for t, positions in enumerate(selected.tolist()):
        for k, position in enumerate(positions):
            if cache.is_held(table, t, position):
                out[t, k] = rows[cache.sequence_ids[t], position]
    return out


@given(caches(), st.booleans())
@settings(deadline=None, max_examples=40)
def test_selected_rows_are_those_of_a_whole_gather(call, codes):
    cache, selected = call
    want = [picked(cache, selected, rows, cache.table) for rows in cache.gather(codes=codes)]
    assert same(cache.gather(selected, codes=codes), want)


@given(caches(), KEEPS, st.booleans())
@settings(deadline=None, max_examples=60)
def test_gather_then_overlay_is_gather_mixed(call, kept, codes):
    """Of selected rows and of all, codes and values: and what is taken from the twin is told row by row."""
    cache, selected = call
    for some in (selected, None):
        assert same(cache.mixed(kept, some, codes), cache.overlay(cache.gather(some, codes), kept, some, codes))
    low, high = (
        picked(cache, selected, x[0], t)
        for x, t in (
            (cache.gather(codes=codes), cache.table),
            (cache.gather_twin(cache.twin_table, codes=codes), cache.twin_table),
        )
    )
    mixed = cache.mixed(kept, selected, codes)[0]
    for t, positions in enumerate(selected.tolist()):
        for k, position in enumerate(positions):
            done = int(cache.committed[cache.sequence_ids[t]])
            held = cache.is_held(cache.twin_table, t, position)
            taken = held and is_retained(position, done, **kept, size=cache.size)
            assert torch.equal(mixed[t, k], (high if taken else low)[t, k])


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_everything_retained_is_a_gather_from_the_twin(encoding, codes):
    cache = Cache(step(encoding))
    cache.twin_table = cache.table
    selected = select(cache.shape)
    for some, kept in itertools.product((selected, None), (ALL, ALL | {"first": 0, "last": 1000})):
        assert same(cache.mixed(kept, some, codes), cache.gather_twin(cache.table, some, codes))
    cache.twin_table = torch.full_like(cache.table, -1)
    assert same(cache.mixed(ALL, selected, codes), cache.gather(selected, codes))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_codes_are_those_of_the_values(encoding):
    cache, scale = Cache(step(encoding)), scale_for("fp8", "latent")
    for selected in (select(cache.shape), None):
        values = [ops.quantize_fp8.default(x, scale) for x in cache.gather(selected)]
        assert same(cache.gather(selected, codes=True), values)


def test_codes_of_an_fp8_cache_under_its_own_scale_are_its_bytes():
    """Every byte there is, zeros of both signs and NaN among them."""
    shape = replace(STEP, encoding="fp8", committed=(15,), own=(1,), padding=0, latent_dim=48, rope_dim=32)
    cache = Cache(shape)
    page = cache.table[0, 0]
    cache.pool[page] = torch.arange(cache.pool.shape[1]) % 256
    every = torch.arange(16, dtype=torch.int32)[None]
    cache.sequence_ids = torch.zeros(1, dtype=torch.int32)
    latent, rope = cache.gather(every, codes=True)
    assert torch.equal(torch.cat((latent.flatten(), rope.flatten())), cache.pool[page])
    assert same([x[:, :16] for x in cache.gather(codes=True)], (latent, rope))


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("fill", FILLS)
def test_other_bytes_change_nothing(fill, codes):
    """Rows at or past a length and pages that nobody holds, in the history and in the twin."""
    cache = Cache(step("fp8"))
    selected = torch.cat((select(cache.shape), torch.tensor([FAR] * cache.shape.tokens, dtype=torch.int32)), 1)
    plain = [cache.mixed(KEPT, some, codes) for some in (selected, None)]
    for name in ("pool", "twin"):
        setattr(cache, name, with_other_bytes(cache.shape, getattr(cache, name), cache.lengths.tolist(), FILLS[fill]))
    again = [cache.mixed(KEPT, some, codes) for some in (selected, None)]
    assert all(same(a, b) for a, b in zip(plain, again, strict=True))
    assert not plain[0][0][:, -len(FAR) :].any() and not plain[0][0][-2:].any(), "no row, padding"


def test_no_row_to_read():
    """No token, nothing selected, no sequence, no page, a table without columns."""
    cache = Cache(step("nvfp4"))
    selected = select(cache.shape)
    assert cache.mixed(KEPT, selected[:, :0])[0].shape == (8, 0, 1, 48)
    cache.table, cache.pool = torch.full_like(cache.table, -1), cache.pool[:0]
    assert not cache.gather(selected)[0].any()
    cache.table, cache.lengths = cache.table[:, :0], cache.lengths * 0
    assert not cache.gather(selected)[0].any() and cache.gather(selected)[0].shape == (8, 6, 1, 48)
    cache.table, cache.lengths, cache.sequence_ids = cache.table[:0], cache.lengths[:0], cache.sequence_ids * 0 - 1
    assert not cache.gather(selected)[0].any()
    cache.sequence_ids = cache.sequence_ids[:0]
    assert cache.gather(selected[:0])[1].shape == (0, 6, 1, 32)


@pytest.mark.parametrize("encoding", ["index_key", "bf16", "fp32"])
def test_index_keys_are_stored_and_gathered(encoding):
    """One field `key`, through the codec of its encoding and store_rows; other bytes stay 0xFF."""
    key, size, rows = normal("key", 5, 1, 128), 4, torch.tensor([11, 9, -1, 8, 6], dtype=torch.int32)
    codec = "fp8_block" if encoding == "index_key" else encoding
    planes = getattr(ops, f"quantize_{codec}").default(key, None)
    planes = [planes] if isinstance(planes, torch.Tensor) else list(planes)
    page = {"index_key": 4 * 128 + 4 * 4, "bf16": 4 * 256, "fp32": 4 * 512}[encoding]
    pool = torch.full((3, page), 0xFF, dtype=torch.uint8)
    ops.store_rows.default(pool, planes, rows, tokens_per_page=size)
    table, selected = torch.tensor([[2, 0, 1]], dtype=torch.int32), torch.tensor([[3, 0, 10]], dtype=torch.int32)
    how = {"encoding": encoding, "fields": ["key"], "heads": [1], "dims": [128], "tokens_per_page": size}
    read = pool, table, torch.tensor([12], dtype=torch.int32), [None], selected, torch.zeros(1, dtype=torch.int32)
    (found,) = ops.gather_rows.default(*read, dtype=torch.float32, **how)
    want = getattr(ops, f"dequantize_{codec}").default(*planes, None, dtype=torch.float32)
    assert torch.equal(found[0], want[[0, 3, 4]])
    assert pool[0].unique().tolist() == [255], "no row of this page is written"


def test_example_selections():
    chosen = select(Shape(committed=(30,), own=(1,), padding=1))
    assert chosen.shape == (2, 6) and chosen[0].unique().numel() == 6 and chosen[1].eq(-1).all()


# variant, index or name of the argument, what to make of it, code, words of the message
BAD = [
    ("gather_rows, selected", 4, lambda t: t[:-1], "KVC551", "sequence_ids: axis T is 8, expected 7"),
    ("gather_rows, selected", 4, lambda _: None, "KVC551", "sequence_ids: goes with selected: give both or neither"),
    ("gather_rows, selected", 4, lambda t: t.long(), "KVC551", "selected: dtype is int64, expected int32"),
    ("gather_rows, selected", 5, lambda t: t + 2, "KVC552", "sequence_ids[2] is 3, expected -1 <= value < 3"),
    ("gather_rows, selected", 5, lambda t: t - 1, "KVC552", "sequence_ids[6] is -2"),
    ("gather_rows, selected", "dtype", lambda _: torch.uint8, "KVC551", "code_scale: is missing: dtype asks for codes"),
    (
        "gather_rows, codes",
        "dtype",
        lambda _: torch.float32,
        "KVC551",
        "expected torch.uint8: code_scale asks",
    ),
    ("gather_rows, codes", 6, lambda t: t[:1], "KVC551", "code_scale: axis 2 is 1, expected 2"),
    ("overlay_retained_rows, selected", 0, lambda x: [x[0][:, :5], x[1]], "KVC551", "axis K is"),
    ("overlay_retained_rows, selected", 7, lambda _: None, "KVC551", "sequence_ids: goes with selected"),
    ("overlay_retained_rows, selected", 7, lambda t: t + 2, "KVC552", "sequence_ids[2] is 3"),
    ("overlay_retained_rows, selected", 3, lambda t: t + 99, "KVC552", "lengths[0] is 106, expected 0 <= value < 65"),
    ("overlay_retained_rows, codes", 8, lambda _: None, "KVC551", "rows[0]: dtype is uint8"),
    ("overlay_retained_rows, codes", 8, lambda t: t * 2, "KVC555", "codes are copied under one scale"),
    ("overlay_retained_rows, codes", 0, lambda x: [y.float() for y in x], "KVC551", "rows[0]: dtype is float32"),
    ("overlay_retained_rows, codes", "encoding", lambda _: "bf16", "KVC551", "copied from a twin in fp8"),
    ("gather_mixed_rows, selected", 9, lambda t: t + 2, "KVC552", "sequence_ids[2] is 3"),
    ("gather_mixed_rows, selected", 8, lambda _: None, "KVC551", "sequence_ids: goes with selected"),
    ("gather_mixed_rows, codes", 10, lambda t: t * 2, "KVC555", "twin_scales[0] is [0.03"),
    ("gather_mixed_rows, codes", "twin_encoding", lambda _: "bf16", "KVC551", "twin_encoding: is bf16: codes are"),
    ("gather_mixed_rows, codes", "dtype", lambda _: torch.int8, "KVC551", "dtype: is torch.int8"),
]


@pytest.mark.parametrize(("variant", "argument", "change", "code", "words"), BAD)
def test_bad_call(variant, argument, change, code, words):
    op, args, how = VARIANTS[variant]()
    args = list(args)
    where = args if isinstance(argument, int) else how
    where[argument] = change(where[argument])
    with pytest.raises(KvcError) as caught:
        OPS[op].overload(*args, **how)
    (found,) = caught.value.diagnostics
    assert found.code == code and f"kvc::{op}: " in found.message and words in found.message
