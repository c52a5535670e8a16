"""Sparse caches at the layer boundary, bit for bit: mixed against plain, fused against unfused, shared choices."""

import pytest
from cache_harness import layers, run_step, step_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import equal, every_row, new_cache, pool_bytes, retained, spec_text
from test_mixed_cache import pages, play, retained_tokens, schedules

from kvc.diagnostics import KvcError
from kvc.runtime.batch import Request

_LATENT = (
    "kind: mla_sparse, variant: dsa, heads: 3, kv_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 16, "
    "v_head_dim: 16, rope: {kind: default, theta: 1e4, layout: interleaved}"
)
_INDEXER = "heads: 2, head_dim: 32, top_k: 7, encoding: fp32"
OWN, SHARED = (f"{{{_LATENT}, indexer: {{{_INDEXER}, {more}}}}}" for more in ("rope_layout: half", "shared: true"))
LAYERS = f"{OWN}, {SHARED}, {OWN}"
LOWS = ("nvfp4", "nvfp4_rope_fp8", "nvfp4_residual")
ENCODINGS = ("fp32", "bf16", "fp8", *LOWS)
each_low = pytest.mark.parametrize("low", LOWS)
dtypes = st.sampled_from(["fp32", "bf16"])


def text(encoding, retain="", dtype="fp32", page=4):
    return spec_text("mla", encoding, retain, dtype, page, LAYERS)


@each_low
@settings(max_examples=2, deadline=None)
@given(schedule=schedules(), page=pages, dtype=dtypes)
def test_everything_retained_is_the_plain_fp8_cache(low, schedule, page, dtype):
    mixed = new_cache(text(low, retained(1000, 1, "fp8"), dtype, page))
    plain = new_cache(text("fp8", "", dtype, page))
    assert equal(play(mixed, schedule), play(plain, schedule))
    assert equal(every_row(mixed, "twin"), every_row(plain, "history"))


@each_low
@settings(max_examples=2, deadline=None)
@given(schedule=schedules(), page=pages, dtype=dtypes)
def test_with_no_page_in_the_twin_it_is_the_plain_low_cache(low, schedule, page, dtype):
    """Under a scale of one, which is what a plain cache gathers codes under."""
    mixed = new_cache(text(low, retained(8, 8, "fp8"), dtype, page))
    plain = new_cache(text(low, "", dtype, page))
    lifecycle = mixed.plan.pools[mixed.program.bindings[0].pools["twin"][0]].lifecycle
    tables = mixed.manager.slot_tables

    def without_twin(*args, **more):
        found = tables(*args, **more)
        found[lifecycle] = -1
        return found

    mixed.manager.slot_tables = without_twin
    assert equal(play(mixed, schedule), play(plain, schedule))
    assert equal(every_row(mixed, "history"), every_row(plain, "history"))


@each_low
@settings(max_examples=2, deadline=None)
@given(schedule=schedules(), first=retained_tokens, last=retained_tokens, unit=st.sampled_from(["token", "page"]))
def test_every_pass_keeps_outputs_and_pools(low, schedule, first, last, unit):
    mixed = text(low, retained(first, last + 1, "fp8", unit), "bf16")
    unfused, fused = new_cache(mixed, passes=0), new_cache(mixed)
    assert equal(play(unfused, schedule), play(fused, schedule))
    assert equal(pool_bytes(unfused), pool_bytes(fused))


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=2, deadline=None)
@given(schedule=schedules())
def test_every_pass_keeps_outputs_and_pools_of_plain_caches(encoding, schedule):
    unfused, fused = new_cache(text(encoding), passes=0), new_cache(text(encoding))
    assert equal(play(unfused, schedule), play(fused, schedule))
    assert equal(pool_bytes(unfused), pool_bytes(fused))


@each_low
@settings(max_examples=2, deadline=None)
@given(schedule=schedules(), first=retained_tokens, last=retained_tokens)
def test_the_page_size_changes_nothing(low, schedule, first, last):
    outs = [play(new_cache(text(low, retained(first, last + 1, "fp8"), page=page)), schedule) for page in (1, 4, 16)]
    assert equal(outs[0], outs[1]) and equal(outs[0], outs[2])


def opened(tokens=12):
    cache = new_cache(text("fp32"))
    cache.admit("a")
    return cache, cache.begin([Request("a", tokens)])


def run_layer(cache, step, layer):
    return cache.layer(layer, *step_inputs(cache, step, layer, {"a": 0}))


def test_a_layer_that_shares_reads_what_was_chosen_before_it():
    cache, step = opened()
    run_layer(cache, step, 0)
    chosen = cache.selection(0)
    run_layer(cache, step, 1)
    assert equal(cache.selection(1), chosen) and chosen.shape == (12, 7)
    for token, row in enumerate(chosen.tolist()):
        count = min(token + 1, 7)
        assert len({*row[:count]}) == count and max(row[:count]) <= token and set(row[count:]) <= {-1}


def test_a_choice_that_is_not_at_hand_is_refused():
    cache, step = opened()
    with pytest.raises(KvcError, match=r"KVC505.*rows that layer 0 chooses are not at hand"):
        run_layer(cache, step, 1)
    run_layer(cache, step, 0)
    run_layer(cache, step, 2)
    with pytest.raises(KvcError, match=r"KVC505.*rows that layer 0 chooses are not at hand"):
        run_layer(cache, step, 1)


def test_choices_do_not_outlive_their_step():
    cache, step = opened()
    for layer in layers(cache):
        run_layer(cache, step, layer)
    cache.commit(step)
    cache.begin([Request("a", 1, "generation")])
    with pytest.raises(KvcError, match="KVC505"):
        cache.selection(0)


def test_rows_that_are_not_chosen_are_not_read():
    """Their pages are poisoned after the step that stored them."""
    cache, step = opened(30)
    for layer in layers(cache):
        run_layer(cache, step, layer)
    cache.commit(step)
    before = run_step(cache, [Request("a", 1, "generation")], {"a": 0})
    unread = set(range(7)) - _chosen_pages(cache)
    assert unread
    _poison(cache, unread)
    assert equal(run_step(cache, [Request("a", 1, "generation")], {"a": 0}), before)


def _poison(cache, pages):
    """The history of layer 1, in some pages of the sequence."""
    pool_id, index = cache.program.bindings[1].pools["history"]
    pool = cache.plan.pools[pool_id]
    slots = cache.manager.slot_tables(["a"])[pool.lifecycle, 0]
    for page in pages:
        cache.pools.view(pool_id, index)[slots[page] * pool.pages_per_slot] = 0xFF


def _chosen_pages(cache):
    """Pages of the rows that layer 1 reads in the next generation step, the page of the token itself among them."""
    step = cache.begin([Request("a", 1, "generation")])
    for layer in (0, 1):
        cache.layer(layer, *step_inputs(cache, step, layer, {"a": 30}))
    found = {row // 4 for row in cache.selection(1)[0].tolist()}
    cache.abort(step)
    return found
