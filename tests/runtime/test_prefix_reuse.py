"""Prefix reuse case by case: what is found, what is not and why, and what a full cache does about it."""

from fractions import Fraction

import numpy as np
import pytest

from kvc.diagnostics import KvcError
from kvc.plan.stale import page_limit
from kvc.plan.types import Lifecycle
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.out_of_pages import OutOfPages
from kvc.specs.resolved import Coverage

FULL = Coverage()
TWIN = Coverage("first_last", 9, keep_first=4)  # of `retain: {first: 4, last: 8}`
PROMPT = list(range(100, 164))


def manager(*coverages, slots=64, sizes=None, domains=None):
    """One pool group a lifecycle."""
    sizes, domains = sizes or [4] * len(coverages), domains or ["target"] * len(coverages)
    cycles = [
        Lifecycle(i, coverage, domain, size, i, (i,), Fraction(1), 0)
        for i, (coverage, size, domain) in enumerate(zip(coverages, sizes, domains, strict=True))
    ]
    return CacheManager(cycles, [slots] * len(cycles), Limits(16, 64, 64))


def start(pages, name, tokens, *chunks, salt=""):
    """Admit and look up a sequence, then commit chunks of it; returns the answer."""
    pages.admit(name)
    answer = pages.reuse(name, tokens, salt)
    for chunk in chunks:
        pages.extend({name: chunk})
        pages.commit({name: chunk})
    return answer


def code_of(call, *args, **kwargs):
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    return caught.value.diagnostics[0].code


def held(pages, name, cycle=0):
    return np.flatnonzero(pages.slot_tables([name])[cycle, 0] >= 0).tolist()


def test_whole_committed_pages_are_shared():
    pages = manager(FULL)
    assert start(pages, "a", PROMPT[:22], 22).tokens == 0
    assert start(pages, "b", PROMPT[:22]).tokens == 20
    assert pages.committed("b") == 20
    assert pages.slot_tables(["b"], 6).tolist() == [[[0, 1, 2, 3, 4, -1]]]
    pages.extend({"b": 2})
    assert pages.slot_tables(["a", "b"])[0, :, 5].tolist() == [5, 6]
    assert pages.free_slots == (64 - 7,)


def test_a_prompt_that_is_held_whole_leaves_a_token_to_compute():
    pages = manager(FULL)
    start(pages, "a", PROMPT[:16], 16)
    assert start(pages, "b", PROMPT[:16]).tokens == 12
    assert start(pages, "c", PROMPT[:17]).tokens == 16
    assert start(pages, "d", PROMPT[:1]).tokens == start(pages, "e", []).tokens == 0


def test_nothing_is_found_before_it_is_committed():
    pages = manager(FULL)
    pages.admit("a")
    pages.reuse("a", PROMPT[:16])
    pages.extend({"a": 16}, {"a": 16})
    assert start(pages, "b", PROMPT[:16]).tokens == 0
    pages.commit({"a": 9})
    assert start(pages, "c", PROMPT[:16]).tokens == 8


def test_other_tokens_and_other_salts_share_nothing():
    pages = manager(FULL)
    start(pages, "a", PROMPT[:16], 16, salt="adapter 1")
    assert start(pages, "b", PROMPT[:17]).tokens == 0
    assert start(pages, "c", PROMPT[:17], salt="adapter 2").tokens == 0
    assert start(pages, "d", [0, *PROMPT[1:17]], salt="adapter 1").tokens == 0
    assert start(pages, "e", [*PROMPT[:8], 0, *PROMPT[9:17]], salt="adapter 1").tokens == 8
    assert start(pages, "f", PROMPT[:17], salt=b"adapter 1").tokens == 16


def test_reuse_is_never_implicit():
    pages = manager(FULL)
    pages.admit("a")
    pages.extend({"a": 16})
    pages.commit({"a": 16})
    assert start(pages, "b", PROMPT[:17]).tokens == 0
    pages.release("a")
    assert pages.free_slots == (64,)
    assert "0.0% of 17 tokens" in str(pages.prefix_statistics())


def test_pages_outlive_release_and_preemption_until_slots_run_out():
    pages = manager(FULL, slots=6)
    start(pages, "a", PROMPT[:24], 24)
    assert pages.preempt("a") == 24
    assert pages.free_slots == (6,)
    assert pages.admit("a") == 24
    assert pages.reuse("a", PROMPT[:24]).tokens == 20
    pages.release("a")
    start(pages, "b", [7] * 8, 8)
    assert start(pages, "c", PROMPT[:24]).tokens == 16  # the deepest page went first
    assert pages.free_slots == (0,)


def test_the_least_recently_used_chain_is_evicted_first():
    pages = manager(FULL, slots=6)
    for name, tokens in (("a", PROMPT[:8]), ("b", [1] * 8), ("c", [2] * 8)):
        start(pages, name, tokens, 8)
        pages.release(name)
    start(pages, "a again", [*PROMPT[:8], 0])
    pages.release("a again")
    start(pages, "d", [3] * 8, 8)
    assert [start(pages, tokens, [tokens] * 8 + [0]).tokens for tokens in (1, 2)] == [0, 8]
    assert start(pages, "e", [*PROMPT[:8], 0]).tokens == 8


def test_generated_tokens_are_found_once_they_are_recorded():
    pages = manager(FULL)
    start(pages, "a", PROMPT[:6], 6)
    pages.extend({"a": 6}, {"a": 6})
    pages.record_tokens("a", [1, 2])
    pages.commit({"a": 2})
    pages.extend({"a": 4})
    pages.commit({"a": 4})  # nobody said which
    assert start(pages, "b", [*PROMPT[:6], 1, 2, 3, 4, 5, 6, 7]).tokens == 8


def test_a_page_offered_late_is_found_from_the_next_commit_on():
    pages = manager(FULL)
    start(pages, "a", PROMPT[:3], 3)
    pages.extend({"a": 5})
    pages.commit({"a": 5})
    pages.record_tokens("a", PROMPT[3:8])
    assert start(pages, "b", PROMPT[:9]).tokens == 0
    pages.extend({"a": 1})
    pages.commit({"a": 1})
    assert start(pages, "c", PROMPT[:9]).tokens == 8


# Windows and twins


def test_a_twin_holds_its_first_and_last_pages_at_the_reused_length():
    pages = manager(FULL, TWIN)
    start(pages, "a", PROMPT[:33], 16, 16, 1)
    assert start(pages, "b", PROMPT[:33]).tokens == 32
    assert (held(pages, "b", 0), held(pages, "b", 1)) == (list(range(8)), [0, 6, 7])
    assert pages.slot_tables(["b"])[1, 0, [0, 6, 7]].tolist() == pages.slot_tables(["a"])[1, 0, [0, 6, 7]].tolist()


def test_a_prefix_is_as_long_as_every_lifecycle_allows():
    pages = manager(FULL, TWIN)
    start(pages, "a", PROMPT[:40], 40)
    answer = start(pages, "b", PROMPT[:32])
    assert (answer.tokens, answer.history_tokens) == (4, 28)
    assert answer.why == "at 28 tokens pages are missing of lifecycle 1 (first_last 9)"
    assert (held(pages, "b", 0), held(pages, "b", 1)) == ([0], [0])


def test_a_longer_prefix_may_be_held_where_a_shorter_one_is_not():
    pages = manager(FULL, TWIN)
    start(pages, "a", PROMPT[:41], 41)
    found = [start(pages, length, PROMPT[: length + 1]).tokens for length in range(4, 41, 4)]
    assert found == [4, 4, 4, 4, 4, 4, 4, 4, 4, 40]


def test_a_chunk_that_ends_where_prompts_part_makes_them_share():
    """What it takes with a twin: its last pages at that length were held once, and may be stale since."""
    pages = manager(FULL, TWIN)
    start(pages, "a", PROMPT[:40], 20, 20)
    answer = start(pages, "b", PROMPT[:20] + [0] * 8)
    assert (answer.tokens, answer.history_tokens, answer.why) == (20, 20, "")
    assert held(pages, "b", 1) == [0, 3, 4]
    assert held(pages, "a", 1) == [0, 8, 9]


def test_the_cost_of_twins_is_counted():
    pages = manager(FULL, TWIN)
    start(pages, "a", PROMPT[:40], 40)
    start(pages, "b", PROMPT[:32])
    statistics = pages.prefix_statistics()
    assert (statistics.lookups, statistics.requested_tokens) == (2, 72)
    assert (statistics.hit_tokens, statistics.history_tokens) == (4, 28)
    assert str(statistics) == "5.6% of 72 tokens reused in 2 lookups, 38.9% by the history alone"


def test_windows_alone_have_no_history_to_compare_with():
    pages = manager(Coverage("window", 6))
    start(pages, "a", PROMPT[:33], 33)
    answer = start(pages, "b", PROMPT[:33])
    assert (answer.tokens, answer.history_tokens, held(pages, "b")) == (32, 32, [6, 7])


@pytest.mark.parametrize("length", range(25, 42))
@pytest.mark.parametrize("coverage", [TWIN, Coverage("window", 6), Coverage("first_last", 1, keep_first=6)])
def test_a_prompt_of_one_chunk_is_found_again(coverage, length):
    """Wherever its last tokens start in a page, with no more pages held than a window can touch."""
    pages = manager(FULL, coverage)
    start(pages, "a", PROMPT[:length], length)
    assert start(pages, "b", PROMPT[:length]).tokens == (length - 1) // 4 * 4
    assert len(held(pages, "a", 1)) <= page_limit(coverage, 4)


def test_a_chunked_layer_needs_no_page_where_a_chunk_starts():
    pages = manager(Coverage("chunk", 16), FULL)
    start(pages, "a", PROMPT[:40], 40)
    assert start(pages, "b", PROMPT[:34]).tokens == 16 * 2
    assert held(pages, "b", 0) == []


def test_pages_of_unequal_size_share_prefixes_of_whole_pages_of_each():
    pages = manager(FULL, Coverage("window", 5), sizes=(6, 4))
    start(pages, "a", PROMPT[:40], *[1] * 40)
    assert start(pages, "b", PROMPT[:40]).tokens == 36
    assert start(pages, "c", PROMPT[:36]).tokens == 24
    assert (held(pages, "c", 0), held(pages, "c", 1)) == ([0, 1, 2, 3], [5])


@pytest.mark.parametrize("kind", ["recurrent", "rolling"])
def test_a_state_cannot_be_reused(kind):
    pages = manager(FULL, Coverage(kind))
    start(pages, "a", PROMPT[:8], 8)
    answer = start(pages, "b", PROMPT[:9])
    assert (answer.tokens, answer.history_tokens) == (0, 8)
    assert answer.why == f"lifecycle 1 ({kind}) keeps a state, which no prefix can be cut from"


def test_the_last_page_of_a_draft_layer_belongs_to_the_token_after_it():
    """Its last row may be computed from that token; the pages before are the same for both."""
    pages = manager(FULL, FULL, domains=("target", "draft"))
    start(pages, "a", PROMPT[:20], 20)
    assert start(pages, "b", PROMPT[:13]).tokens == 12
    assert start(pages, "c", [*PROMPT[:12], 0]).tokens == 8


# Full caches


def test_a_shared_slot_is_not_freed_by_one_of_its_holders():
    pages = manager(FULL, slots=6)
    start(pages, "a", PROMPT[:16], 16)
    start(pages, "b", PROMPT[:17], 1)
    with pytest.raises(OutOfPages) as caught:
        pages.extend({"b": 16})
    answer = caught.value
    assert [(holder.id, holder.slots) for holder in answer.holders] == [("b", {0: 1})]
    assert (answer.groups[0].needed, answer.groups[0].free, answer.solvable) == (4, 1, False)
    pages.extend({"b": 6})


def test_evictable_slots_count_as_free():
    pages = manager(FULL, slots=4)
    start(pages, "a", PROMPT[:16], 16)
    pages.release("a")
    assert pages.free_slots == (4,)
    start(pages, "b", PROMPT[:9])
    assert pages.free_slots == (2,)
    with pytest.raises(OutOfPages) as caught:
        pages.extend({"b": 9})
    assert (caught.value.groups[0].free, caught.value.fitting) == (2, {"b": 8})
    pages.extend({"b": 8})
    assert pages.free_slots == (0,)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda p: p.reuse("x", [1]), "KVC501"),
        (lambda p: p.reuse("started", [1]), "KVC505"),
        (lambda p: p.reuse("in flight", [1]), "KVC505"),
        (lambda p: p.reuse("asked", [1]), "KVC505"),
        (lambda p: p.reuse("new", [0.5]), "KVC504"),
        (lambda p: p.record_tokens("x", [1]), "KVC501"),
        (lambda p: p.record_tokens("new", [1]), "KVC505"),
        (lambda p: p.record_tokens("asked", [[1]]), "KVC504"),
    ],
)
def test_refused_calls_change_nothing(call, code):
    pages = manager(FULL)
    for name in ("new", "started", "in flight"):
        pages.admit(name)
    start(pages, "asked", PROMPT[:5])
    pages.extend({"started": 4})
    pages.commit({"started": 4})
    pages.extend({"in flight": 4})
    before = (pages.slot_tables(pages.sequences).tolist(), pages.free_slots, pages.prefix_statistics())
    assert code_of(call, pages) == code
    assert before == (pages.slot_tables(pages.sequences).tolist(), pages.free_slots, pages.prefix_statistics())
    pages.reuse("new", [1])
