"""Caches that stage for an engine's own attention, beside caches whose attention kvc computes."""

import pytest
import torch
from cache_harness import run_step
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import KINDS_AND_PAIRS, equal, play, pool_bytes, retained, schedules
from staged_engine import Engine, pair

each_pair = pytest.mark.parametrize(("kind", "low", "high"), KINDS_AND_PAIRS)
plain = pytest.mark.parametrize(
    ("kind", "encoding"), [*(("gqa", name) for name in ("fp32", "fp8", "nvfp4")), ("mla", "bf16"), ("mla", "nvfp4")]
)
pages = st.sampled_from([1, 2, 4, 16])
ends = st.one_of(st.integers(0, 6), st.integers(7, 40))
UNITS = st.sampled_from(["token", "page"])


def check_against_kvc(kind, ours, theirs, schedule, padded=False):
    """Outputs within rounding of fp32, every byte of every pool."""
    engine = Engine(theirs, ours, kind, padded)
    for expected, got in zip(play(ours, schedule), play(theirs, schedule, engine.step), strict=True):
        for name in expected:
            torch.testing.assert_close(got[name], expected[name], rtol=1e-5, atol=1e-5)
    assert equal(pool_bytes(ours), pool_bytes(theirs))


@each_pair
@settings(max_examples=6, deadline=None)
@given(schedule=schedules(), page=pages, first=ends, last=ends, unit=UNITS, padded=st.booleans())
def test_an_engines_attention_is_that_of_kvc(kind, low, high, schedule, page, first, last, unit, padded):
    caches = pair(kind, low, retained(first, last + 1, high, unit), page=page)
    check_against_kvc(kind, *caches, schedule, padded)


@plain
@settings(max_examples=6, deadline=None)
@given(schedule=schedules(), page=pages)
def test_an_engines_attention_on_a_plain_cache(kind, encoding, schedule, page):
    check_against_kvc(kind, *pair(kind, encoding, page=page), schedule)


@each_pair
@settings(max_examples=4, deadline=None)
@given(schedule=schedules())
def test_an_engines_attention_with_no_page_in_the_twin(kind, low, high, schedule):
    caches = pair(kind, low, retained(8, 8, high))
    for cache in caches:
        without_twin(cache)
    check_against_kvc(kind, *caches, schedule)


def without_twin(cache):
    """All entries of the twin's tables are -1."""
    lifecycle = cache.plan.pools[cache.program.bindings[0].pools["twin"][0]].lifecycle
    tables = cache.manager.slot_tables

    def slot_tables(*args, **more):
        made = tables(*args, **more)
        made[lifecycle] = -1
        return made

    cache.manager.slot_tables = slot_tables


def staged(kind, caches, schedule):
    """Everything that was staged in a schedule."""
    engine = Engine(caches[1], caches[0], kind)
    play(caches[1], schedule, engine.step)
    return engine.staged


@each_pair
@settings(max_examples=4, deadline=None)
@given(schedule=schedules(), page=pages, dtype=st.sampled_from(["fp32", "bf16"]))
def test_staging_at_the_ends(kind, low, high, schedule, page, dtype):
    """Everything retained is the plain high cache; no page in the twin is the plain low one."""
    mixed = pair(kind, low, retained(1000, 1, high), dtype, page)
    assert equal(staged(kind, mixed, schedule), staged(kind, pair(kind, high, "", dtype, page), schedule))
    mixed = pair(kind, low, retained(8, 8, high), dtype, page)
    without_twin(mixed[1])
    assert equal(staged(kind, mixed, schedule), staged(kind, pair(kind, low, "", dtype, page), schedule))


@each_pair
@settings(max_examples=4, deadline=None)
@given(schedule=schedules(), first=ends, last=ends)
def test_neither_page_size_nor_passes_change_what_is_staged(kind, low, high, schedule, first, last):
    twin = retained(first, last + 1, high)
    found = [staged(kind, pair(kind, low, twin, page=page), schedule) for page in (1, 4, 16)]
    found.append(staged(kind, pair(kind, low, twin, passes=0), schedule))
    assert all(equal(found[0], other) for other in found[1:])


@each_pair
def test_own_rows_are_staged_as_computed_in_context_and_as_stored_in_generation(kind, low, high):
    """Of the same rows: so the phases differ, and the tests above can fail."""
    rows = []
    for phase in ("context", "generation"):
        caches = pair(kind, low)
        rows.append(staged(kind, caches, [([("a", 3, "context")], {}), ([("a", 2, phase)], {"a": 2})]))
    context, generation = (found[-1] for found in rows)
    assert torch.equal(context[:3], generation[:3]) and not torch.equal(context[3:], generation[3:])


def test_stale_staging_would_change_the_output():
    """The engine's staging of another layer is not read: without `stage` the outputs are others."""
    caches = pair("gqa", "nvfp4", retained(2, 4, "bf16"))
    schedule = [([("a", 9, "context")], {}), ([("a", 1, "generation")], {"a": 1})]
    expected = play(caches[0], schedule, run_step)
    caches[1].stage = lambda *args: None
    got = play(caches[1], schedule, Engine(caches[1], caches[0], "gqa").step)
    assert not torch.allclose(got[1]["a"], expected[1]["a"], atol=1e-3)
