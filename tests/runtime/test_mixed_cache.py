"""Caches with a twin: the identities of docs/semantics.md, bit for bit at the layer boundary, over random schedules."""

import pytest
import torch
from cache_harness import layers, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import (
    KINDS_AND_PAIRS,
    artifact,
    equal,
    every_row,
    new_cache,
    play,
    pool_bytes,
    retained,
    schedules,
    spec_text,
)

from kvc.runtime.batch import Request

each_pair = pytest.mark.parametrize(("kind", "low", "high"), KINDS_AND_PAIRS)
pages = st.sampled_from([1, 2, 4, 16])
retained_tokens = st.one_of(st.integers(0, 6), st.integers(7, 40))


@each_pair
@settings(max_examples=8, deadline=None)
@given(schedule=schedules(), page=pages, dtype=st.sampled_from(["fp32", "bf16"]))
def test_everything_retained_is_the_plain_high_cache(kind, low, high, schedule, page, dtype):
    mixed = new_cache(spec_text(kind, low, retained(1000, 1, high), dtype, page))
    plain = new_cache(spec_text(kind, high, "", dtype, page))
    assert equal(play(mixed, schedule), play(plain, schedule))
    assert equal(every_row(mixed, "twin"), every_row(plain, "history"))


@each_pair
@settings(max_examples=8, deadline=None)
@given(schedule=schedules(), page=pages, dtype=st.sampled_from(["fp32", "bf16"]))
def test_with_no_page_in_the_twin_it_is_the_plain_low_cache(kind, low, high, schedule, page, dtype):
    mixed = new_cache(spec_text(kind, low, retained(8, 8, high), dtype, page))
    plain = new_cache(spec_text(kind, low, "", dtype, page))
    twin = mixed.program.bindings[0].pools["twin"][0]
    lifecycle = mixed.plan.pools[twin].lifecycle
    tables = mixed.manager.slot_tables
    mixed.manager.slot_tables = lambda *args, **more: _without(tables(*args, **more), lifecycle)
    assert equal(play(mixed, schedule), play(plain, schedule))
    assert equal(every_row(mixed, "history"), every_row(plain, "history"))


def _without(tables, lifecycle):
    tables[lifecycle] = -1
    return tables


@each_pair
@settings(max_examples=8, deadline=None)
@given(schedule=schedules(), first=retained_tokens, last=retained_tokens, unit=st.sampled_from(["token", "page"]))
def test_every_pass_keeps_outputs_and_pools(kind, low, high, schedule, first, last, unit):
    text = spec_text(kind, low, retained(first, last + 1, high, unit), "bf16")
    unfused, fused = new_cache(text, passes=0), new_cache(text)
    assert equal(play(unfused, schedule), play(fused, schedule))
    assert equal(pool_bytes(unfused), pool_bytes(fused))


@each_pair
@settings(max_examples=8, deadline=None)
@given(schedule=schedules(), first=retained_tokens, last=retained_tokens)
def test_the_page_size_does_not_change_single_tokens(kind, low, high, schedule, first, last):
    caches = [new_cache(spec_text(kind, low, retained(first, last + 1, high), page=page)) for page in (1, 4, 16)]
    outs = [play(cache, schedule) for cache in caches]
    assert equal(outs[0], outs[1]) and equal(outs[0], outs[2])


@each_pair
def test_strided_inputs(kind, low, high):
    """Inputs as slices of wider projections give the bits of contiguous ones."""
    text, steps = spec_text(kind, low, retained(5, 9, high)), [(11, "context"), (2, "generation")]
    apart, strided = new_cache(text, passes=0), new_cache(text)
    for cache in (apart, strided):
        cache.admit("a")
    for tokens, phase in steps:
        start = apart.manager.committed("a")
        opened = [cache.begin([Request("a", tokens, phase)]) for cache in (apart, strided)]
        for layer in layers(apart):
            inputs = rows(apart, "a", layer, start, tokens)
            wide = [torch.cat((x, x), 1)[:, : x.shape[1]] if x.shape[1] > 1 else torch.cat((x, x), 2) for x in inputs]
            wide = [x[..., : y.shape[-1]] for x, y in zip(wide, inputs, strict=True)]
            assert any(not x.is_contiguous() for x in wide)
            assert torch.equal(apart.layer(layer, *inputs), strided.layer(layer, *wide))
        apart.commit(opened[0]), strided.commit(opened[1])
    assert equal(pool_bytes(apart), pool_bytes(strided))


def test_nothing_retained_is_no_twin():
    plain, mixed = (artifact(spec_text("gqa", "nvfp4", retain)) for retain in ("", retained(0, 0, "fp8")))
    assert plain.program.to_json() == mixed.program.to_json() and plain.plan.pools == mixed.plan.pools


def test_twin_rows_in_the_middle_are_released_and_change_outputs():
    """The test above can fail: what the window loses is read from the history from then on."""
    short, long = (new_cache(spec_text("gqa", "nvfp4", retained(4, last, "bf16"))) for last in (8, 60))
    schedule = [([("a", 30, "context")], {}), ([("a", 1, "generation")], {"a": 1})]
    assert not equal(play(short, schedule)[1], play(long, schedule)[1])
    held = every_row(short, "twin")[0]
    assert held.keys() == {0, 5, 6, 7}
    assert torch.equal(held[0], every_row(long, "twin")[0][0])
