"""Compiled mixed caches against plain tensors: random steps, drafts taken back, poisoned pools."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import KINDS_AND_PAIRS, new_cache, retained, spec_text
from mixed_model import Model, Retention
from mixed_player import Both, events, retained_edges

DRAFT = "draft: {kind: mtp, layers: 1, max_draft_tokens: 3, encoding: bf16}"
LAYOUTS = {"gqa": "half", "mla": "interleaved"}


def dense(kind, low, high, page, first, last, unit, draft=""):
    """A cache of dense layers, and of draft ones, and its model."""
    text = spec_text(kind, low, retained(first, last, high, unit), "fp32", page, more=draft)
    cache = new_cache(text, num_slots=max(60 // page, 20))
    mixed, plain = Retention(low, high, first, last, unit, page), Retention("bf16", "bf16", 0, 0, unit, page)
    retains = [mixed if "twin" in binding.pools else plain for binding in cache.program.bindings]
    return Both(cache, lambda weights: Model(kind, retains, weights, LAYOUTS[kind]))


@pytest.mark.parametrize(("kind", "low", "high"), KINDS_AND_PAIRS)
@settings(max_examples=2, deadline=None)
@given(twin=retained_edges(), draft=st.sampled_from(["", DRAFT]), schedule=st.lists(events(), min_size=4, max_size=14))
def test_steps_read_what_is_retained_and_nothing_else(kind, low, high, twin, draft, schedule):
    both = dense(kind, low, high, *twin, draft)
    for event in schedule:
        both.play(event)


@pytest.mark.parametrize("unit", ["token", "page"])
def test_a_reused_prefix_is_read_as_the_one_that_was_computed(unit):
    both = dense("mla", "nvfp4_rope_fp8", "fp8", 4, 3, 9, unit)
    both.play(("step", {"a": 20}, [], 1, {}))
    both.play(("step", {"b": 5}, ["a"], 3, {"a": 2}))
    both.play(("reuse", "c", 0))
    both.play(("step", {"c": 7}, ["a"], 1, {}))
    both.play(("step", {}, ["c", "a"], 2, {"c": 1}))
    assert both.reused >= 8


@pytest.mark.parametrize("wrong", [{"first": 5}, {"last": 6}, {"unit": "page"}, {"high": "fp8"}])
def test_a_row_read_from_the_wrong_pool_is_seen(wrong):
    """The test above can fail."""
    both = dense("gqa", "nvfp4", "bf16", 4, 3, 5, "token")
    both.play(("step", {"a": 11}, [], 1, {}))
    both.model.retains = [replace(one, **wrong) for one in both.model.retains]
    with pytest.raises(AssertionError):
        both.play(("step", {}, ["a"], 2, {}))
