"""Caches that stage for an engine's own attention, beside caches whose attention kvc computes."""

import pytest
import torch
from cache_harness import run_step
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import KINDS_AND_PAIRS, equal, play, pool_bytes, retained, schedules
from staged_engine import Engine, pair, without_twin

each_pair = pytest.mark.parametrize(("kind", "low", "high"), KINDS_AND_PAIRS)
plain = pytest.mark.parametrize(
    ("kind", "encoding"), [*(("gqa", name) for name in ("fp32", "fp8", "nvfp4")), ("mla", "bf16"), ("mla", "nvfp4")]
)
# first, last, unit, tokens of a page: few, so that each is compiled once
KEPT = st.sampled_from([(3, 6, "token", 4), (0, 1, "token", 1), (7, 30, "page", 16)])


def check_against_kvc(kind, ours, theirs, schedule, padded=False):
    """Outputs within rounding of fp32, every byte of every pool."""
    engine = Engine(theirs, ours, kind, padded)
    for expected, got in zip(play(ours, schedule), play(theirs, schedule, engine.step), strict=True):
        for name in expected:
            torch.testing.assert_close(got[name], expected[name], rtol=1e-5, atol=1e-5)
    assert equal(pool_bytes(ours), pool_bytes(theirs))


@each_pair
@settings(max_examples=3, deadline=None)
@given(schedule=schedules(), kept=KEPT, padded=st.booleans())
def test_an_engines_attention_is_that_of_kvc(kind, low, high, schedule, kept, padded):
    first, last, unit, page = kept
    caches = pair(kind, low, retained(first, last, high, unit), page=page)
    check_against_kvc(kind, *caches, schedule, padded)


@plain
@settings(max_examples=4, deadline=None)
@given(schedule=schedules(), page=st.sampled_from([1, 16]))
def test_an_engines_attention_on_a_plain_cache(kind, encoding, schedule, page):
    check_against_kvc(kind, *pair(kind, encoding, page=page), schedule)


@each_pair
@settings(max_examples=4, deadline=None)
@given(schedule=schedules())
def test_an_engines_attention_with_no_page_in_the_twin(kind, low, high, schedule):
    caches = pair(kind, low, retained(3, 6, high))
    for cache in caches:
        without_twin(cache)
    check_against_kvc(kind, *caches, schedule)


def test_stale_staging_would_change_the_output():
    """The engine's staging of another layer is not read: without `stage` the outputs are others."""
    caches = pair("gqa", "nvfp4", retained(2, 4, "bf16"))
    schedule = [([("a", 9, "context")], {}), ([("a", 1, "generation")], {"a": 1})]
    expected = play(caches[0], schedule, run_step)
    caches[1].stage = lambda *args: None
    got = play(caches[1], schedule, Engine(caches[1], caches[0], "gqa").step)
    assert not torch.allclose(got[1]["a"], expected[1]["a"], atol=1e-3)
