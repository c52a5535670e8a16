"""Tokens that were drafted and rejected leave no trace, and lengths that the host learns late keep every page."""

import pytest
import torch
from cache_harness import rows
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import LAYERS, equal, new_cache, retained, spec_text
from speculation_harness import Drafted, Engine, committed_rows, draft_spec, held
from test_cache_manager import code_of, cycle, manager, snapshot

from kvc.diagnostics import KvcError
from kvc.plan.stale import ceil_div, page_limit, stale_pages
from kvc.runtime.batch import Request
from kvc.runtime.capture import capture_inputs, replay_bucket
from kvc.runtime.graph_runner import GraphRunner
from kvc.specs.resolved import Coverage

TWINS = {"plain": "", "mixed": retained(3, 5, "bf16"), "all": retained(3, 500, "fp8")}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 20), st.lists(st.integers(0, 3), min_size=1, max_size=5), st.sampled_from([1, 4]))
def test_rejected_drafts_then_the_true_token_are_no_drafts_at_all(kind, twin, prompt, drafts, page):
    """Every committed row of every buffer, the pages that are held, and the outputs of the true tokens.

    In a step of more than one token a product of its rows may round apart from a product of one, and no further.
    """
    text = draft_spec(kind, "nvfp4", TWINS[twin], page=page)
    drafted, plain = Engine(new_cache(text)), Engine(new_cache(text))
    for engine in (drafted, plain):
        engine.synchronous([Drafted("a", prompt, "context")])
    for wrong in drafts:
        drafted.synchronous([Drafted("a", 1 + wrong, "generation", 1)])
        plain.synchronous([Drafted("a", 1, "generation")])
    for wrong, step, expected in zip([0, *drafts], drafted.outs, plain.outs, strict=True):
        for out, true in zip(step["a"], expected["a"], strict=True):
            torch.testing.assert_close(out, true, rtol=1e-5 if wrong else 0, atol=1e-6 if wrong else 0)
    for role in ("history", "twin"):
        assert equal(*(committed_rows(engine.cache, "a", role) for engine in (drafted, plain)))
    assert held(drafted.cache) == held(plain.cache)
    # From here on both are one cache.
    for engine in (drafted, plain):
        engine.synchronous([Drafted("a", 1, "generation")])
    assert equal(drafted.outs[-1], plain.outs[-1])


# The page manager alone


COVERAGES = [Coverage(), Coverage("first_last", 6, keep_first=3), Coverage("window", 5)]


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.booleans(), st.integers(0, 4)), max_size=14),
    prompt=st.integers(1, 30),
    size=st.integers(1, 5),
)
def test_every_length_that_the_device_may_correct_to_has_its_pages(steps, prompt, size):
    pages = manager([cycle(i, coverage, size) for i, coverage in enumerate(COVERAGES)], (200,), 4, 200, 64)
    pages.admit("a")
    pages.extend({"a": prompt})
    pages.commit({"a": prompt})
    true, in_flight = prompt, None
    for tokens, accepted, late, undone in steps:
        if in_flight is not None and not late:
            pages.settle({"a": in_flight})
            in_flight = None
        pages.extend({"a": tokens}, {"a": tokens})
        check_pages(pages, size, pages.committed("a") - pages.unsettled("a"), pages.committed("a"), tokens)
        if undone == 0:
            pages.commit({"a": 0})
            continue
        if in_flight is not None:
            assert code_of(pages.commit, {"a": 1}) == "KVC505"
            pages.settle({"a": in_flight})
        assert pages.committed("a") == true
        pages.commit({"a": tokens}, {"a": tokens})
        in_flight = min(accepted, tokens)
        true += in_flight
        check_bounds(pages, size)
    if in_flight is not None:
        pages.settle({"a": in_flight})
    assert (pages.committed("a"), pages.unsettled("a")) == (true, 0)
    for found, coverage in zip(pages.slot_tables(["a"])[:, 0] >= 0, COVERAGES, strict=True):
        stale = stale_pages(coverage, true, size)
        assert found.nonzero()[0].tolist() == [page for page in range(ceil_div(true, size)) if page not in stale]


def check_pages(pages, size, lowest, highest, tokens):
    """Whatever was accepted, what the step reads and writes is there."""
    table = pages.slot_tables(["a"])[:, 0]
    for length in range(lowest, highest + 1):
        for found, coverage in zip(table >= 0, COVERAGES, strict=True):
            stale = stale_pages(coverage, length, size)
            assert all(found[page] for page in range(ceil_div(length + tokens, size)) if page not in stale)


def check_bounds(pages, size):
    """Between steps no more is held than what unsettled tokens widen the window by."""
    for found, coverage in zip(pages.slot_tables(["a"])[:, 0] >= 0, COVERAGES, strict=True):
        limit = page_limit(coverage, size, pages.unsettled("a"))
        assert limit is None or found.sum() <= limit


def test_what_cannot_be_settled():
    pages = manager()
    pages.admit("a")
    pages.extend({"a": 5}, {"a": 3})
    before = snapshot(pages)
    assert code_of(pages.commit, {"a": 5}, {"a": 6}) == "KVC507"
    assert snapshot(pages) == before
    pages.commit({"a": 5}, {"a": 3})
    for call, *more in ((pages.preempt,), (pages.release,), (pages.reuse, [1, 2]), (pages.rewind, 1)):
        assert code_of(call, "a", *more) == "KVC505"
    before = snapshot(pages)
    for counts in ({"a": 4}, {"a": -1}, {"a": True}, {"a": 1, "b": 0}):
        assert code_of(pages.settle, counts) in ("KVC507", "KVC501")
    assert snapshot(pages) == before
    pages.settle({"a": 0})
    assert pages.committed("a") == 2
    assert code_of(pages.settle, {"a": 1}) == "KVC507"


def test_rewinding():
    """A draft model runs ahead on its own cache, and goes back to what was accepted."""
    pages = manager([cycle(), cycle(1, Coverage("window", 6))], (20,))
    pages.admit("a")
    for _ in range(10):
        pages.extend({"a": 1}, {"a": 1})
        pages.commit({"a": 1})
    pages.rewind("a", 9)
    assert (pages.committed("a"), pages.held_slots("a")) == (9, {0: 5})
    before = snapshot(pages)
    for length in (10, -1, 3):  # longer, negative, and pages that the window has released
        assert code_of(pages.rewind, "a", length) == "KVC507"
    assert snapshot(pages) == before
    pages.admit("b")
    pages.reuse("b", [1, 2, 3])
    assert code_of(pages.rewind, "b", 0) == "KVC505"


def test_a_rewound_cache_forgets():
    text = spec_text("gqa", "fp8")
    ahead, plain = Engine(new_cache(text)), Engine(new_cache(text))
    for engine in (ahead, plain):
        engine.synchronous([Drafted("a", 7, "context")])
    ahead.lengths["a"] = 6
    ahead.cache.rewind("a", 6)
    ahead.synchronous([Drafted("a", 1, "generation")])
    assert equal(*(committed_rows(engine.cache, "a", "history") for engine in (ahead, plain)))


# One step in flight


def begun(tokens=3):
    cache = new_cache(draft_spec("gqa", "bf16"))
    engine = Engine(cache)
    engine.synchronous([Drafted("a", 5, "context")])
    step = cache.begin([Request("a", tokens, "generation")])
    for layer in range(4):
        cache.layer(layer, *engine.inputs(layer, [Drafted("a", tokens)]))
    return cache, step


def test_calls_in_the_wrong_order():
    cache, step = begun()
    assert code_of(cache.settle, step) == "KVC505"
    cache.advance(step)
    assert code_of(cache.advance, step) == "KVC505"
    assert code_of(cache.commit, step) == "KVC505"
    assert code_of(cache.preempt, "a") == "KVC505"
    cache.accepted[0] = 2
    later = cache.begin([Request("a", 1, "generation")])
    assert cache.positions().tolist() == [7]
    assert code_of(cache.advance, later) == "KVC528"
    cache._done.update(range(4))
    assert code_of(cache.commit, later) == "KVC505"
    assert code_of(cache.settle, step, {"a": 4}) == "KVC507"
    assert code_of(cache.settle, step, {"b": 0}) == "KVC507"
    cache.settle(step, {"a": 2})
    assert cache.manager.committed("a") == 7
    assert code_of(cache.settle, step) == "KVC505"
    cache.abort(later)


def test_an_aborted_step_leaves_the_one_in_flight():
    cache, step = begun()
    cache.advance(step)
    cache.accepted[0] = 1
    for _ in range(2):
        later = cache.begin([Request("a", 4, "generation")])
        assert cache.positions().tolist() == [6, 7, 8, 9]
        cache.abort(later)
    cache.settle(step, {"a": 1})
    assert cache.manager.committed("a") == 6


def test_layers_must_have_run():
    cache, step = begun()
    cache._done.discard(3)
    assert code_of(cache.advance, step) == "KVC505"


def test_a_sampler_that_wrote_nonsense_is_found():
    cache, step = begun()
    cache.advance(step)
    cache.accepted[0] = 4
    with pytest.raises(KvcError, match=r"KVC552 kvc::correct_lengths: accepted\[0\] is 4, expected 0 <= value <= 3"):
        cache.begin([Request("a", 1, "generation")])
    cache.accepted[0] = 2
    following = cache.begin([Request("a", 1, "generation")])  # the step that could not begin has left nothing
    assert cache.positions().tolist() == [7]
    cache.abort(following)


# Captured


NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize("kind", LAYERS)
def test_replayed_overlapped_steps_equal_eager_ones(kind):
    text = draft_spec(kind, "nvfp4", TWINS["mixed"])
    eager, captured = Engine(new_cache(text)), Engine(new_cache(text))
    cache, tokens, bucket = captured.cache, 3, 4
    buffers = [
        [x.new_zeros((bucket * tokens, *x.shape[1:])) for x in rows(cache, "a", layer, 0, 1)] for layer in range(4)
    ]

    def forward(step):
        cache.prologue(step)
        return [cache.positions(padded=True), *(cache.layer(i, *x) for i, x in enumerate(buffers))]

    runner, step = GraphRunner(), cache.padding_step(bucket, tokens, prologue=False)
    planned = capture_inputs(cache, step.bucket)
    assert planned.static["feedback.accepted"] is cache.accepted
    inputs = {f"{i}.{j}": x for i, layer in enumerate(buffers) for j, x in enumerate(layer)}
    runner.capture(step.bucket, lambda: forward(step), planned.static, {**planned.copied, **inputs})
    cache.abort(step)
    prompts = [Drafted(name, 5 + i, "context") for i, name in enumerate(NAMES)]
    eager.synchronous(prompts)
    captured.synchronous(prompts)
    for count in range(6):
        batch = [Drafted(name, tokens, "generation", (count + i) % 4) for i, name in enumerate(NAMES) if count % 4 != i]
        eager.synchronous(batch)
        step = cache.begin([one.request for one in batch], prologue=False)
        for layer, held_inputs in enumerate(buffers):
            for buffer, x in zip(held_inputs, captured.inputs(layer, batch), strict=True):
                buffer[: len(x)] = x
        _, *outs = runner.replay(replay_bucket(cache, step), {"step": cache.step_buffer, **inputs})
        places = step.rows
        captured.outs.append({one.name: [out[places[one.name]][: one.true].clone() for out in outs] for one in batch})
        captured.settle()
        cache.accepted[: len(batch)] = torch.tensor([one.true for one in batch], dtype=torch.int32)
        cache.advance(step)
        captured.in_flight = step, {one.name: one.true for one in batch}
        captured._accept(batch)
    captured.settle()
    assert equal(eager.outs, captured.outs)
    for name in NAMES:
        for role in ("history", "twin"):
            assert equal(*(committed_rows(engine.cache, name, role) for engine in (eager, captured)))
