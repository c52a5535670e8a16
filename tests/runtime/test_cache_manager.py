"""The page manager call by call; `test_page_schedules.py` has the random schedules, `test_prefix_reuse.py` reuse."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from kvc.diagnostics import KvcError
from kvc.plan.types import Lifecycle
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.out_of_pages import OutOfPages
from kvc.specs.resolved import Coverage

FULL = Coverage()


def cycle(index=0, coverage=FULL, tokens_per_page=4, pool_group=0):
    return Lifecycle(index, coverage, "target", tokens_per_page, pool_group, (index,), Fraction(1), 0)


def manager(cycles=None, slots=(8,), max_sequences=4, max_seq_len=64, max_tokens=64):
    return CacheManager(cycles or [cycle()], slots, Limits(max_sequences, max_seq_len, max_tokens))


def code_of(call, *args, **kwargs):
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    return caught.value.diagnostics[0].code


def run(pages, name, tokens):
    pages.extend({name: tokens})
    pages.commit({name: tokens})


def snapshot(pages):
    names = pages.sequences
    state = [(name, pages.committed(name), pages.scheduled(name), pages.held_slots(name)) for name in names]
    return state, pages.slot_tables(names).tolist(), pages.free_slots, pages.preempted


def test_tables_name_the_lowest_free_slots():
    pages = manager()
    pages.admit("a")
    pages.admit("b")
    run(pages, "a", 5)
    run(pages, "b", 4)
    run(pages, "a", 4)
    assert pages.slot_tables(["a", "b"], 4).tolist() == [[[0, 1, 3, -1], [2, -1, -1, -1]]]
    assert pages.slot_tables(["a", "b"]).shape == (1, 2, 16)
    pages.release("a")
    pages.admit("c")
    run(pages, "c", 8)
    assert pages.slot_tables(["c"], 2).tolist() == [[[0, 1]]]


def test_slot_tables_are_a_copy():
    pages = manager()
    pages.admit("a")
    pages.slot_tables(["a"])[:] = 7
    assert (pages.slot_tables(["a"]) == -1).all()


def test_commit_with_fewer_tokens_returns_pages():
    pages = manager()
    pages.admit("a")
    run(pages, "a", 3)
    pages.extend({"a": 6}, {"a": 6})
    assert pages.held_slots("a") == {0: 3}
    pages.commit({"a": 1})
    assert (pages.committed("a"), pages.held_slots("a"), pages.free_slots) == (4, {0: 1}, (7,))


def test_commit_of_nothing_undoes_the_step():
    pages = manager()
    pages.admit("a")
    run(pages, "a", 3)
    before = snapshot(pages)
    pages.extend({"a": 9})
    pages.commit({"a": 0})
    assert snapshot(pages) == before


def test_a_window_keeps_its_first_and_last_pages():
    pages = manager([cycle(coverage=Coverage("window", 6, keep_first=3))], slots=(9,))
    pages.admit("a")
    for _ in range(8):
        run(pages, "a", 4)
    # 32 tokens: page 0 is kept; the token at 32 reads from 27 on, in page 6
    held = pages.slot_tables(["a"])[0, 0] >= 0
    assert np.flatnonzero(held).tolist() == [0, 6, 7]


def test_a_long_prefill_of_a_window_takes_only_pages_that_are_read_later():
    pages = manager([cycle(coverage=Coverage("window", 6))], slots=(3,))
    pages.admit("a")
    run(pages, "a", 60)
    assert pages.held_slots("a") == {0: 2}
    pages.extend({"a": 2}, {"a": 2})
    pages.commit({"a": 2})


def test_commit_refuses_a_length_whose_pages_were_not_kept():
    pages = manager([cycle(coverage=Coverage("window", 6))], slots=(3,))
    pages.admit("a")
    pages.extend({"a": 60})
    assert code_of(pages.commit, {"a": 20}) == "KVC507"
    pages.commit({"a": 60})


def test_preempt_remembers_what_to_recompute():
    pages = manager()
    pages.admit("a")
    run(pages, "a", 9)
    assert pages.preempt("a") == 9
    assert (pages.free_slots, pages.preempted, pages.sequences) == ((8,), {"a": 9}, ())
    assert code_of(pages.extend, {"a": 1}) == "KVC501"
    assert pages.admit("a") == 9
    assert (pages.committed("a"), pages.preempted) == (0, {})
    pages.preempt("a")
    pages.release("a")
    assert pages.admit("a") == 0


def test_out_of_pages_says_what_a_scheduler_can_do():
    pages = manager(slots=(8,))
    for name, tokens in (("a", 8), ("b", 12)):
        pages.admit(name)
        run(pages, name, tokens)
    pages.admit("c")
    before = snapshot(pages)
    with pytest.raises(OutOfPages) as caught:
        pages.extend({"b": 1, "c": 20})
    answer = caught.value
    assert snapshot(pages) == before
    assert answer.diagnostics[0].code == "KVC510"
    assert (answer.groups[0].needed, answer.groups[0].free, answer.groups[0].total) == (6, 3, 8)
    assert [(holder.id, holder.slots) for holder in answer.holders] == [("a", {0: 2}), ("b", {0: 3})]
    assert answer.fitting == {"b": 1, "c": 8}
    assert not answer.solvable
    pages.extend(answer.fitting)


def test_out_of_pages_that_preemption_solves():
    pages = manager(slots=(4,))
    for name in "ab":
        pages.admit(name)
    run(pages, "a", 8)
    with pytest.raises(OutOfPages) as caught:
        pages.extend({"b": 16})
    assert caught.value.solvable
    pages.preempt(caught.value.holders[0].id)
    pages.extend({"b": 16})


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda p: p.admit("a"), "KVC502"),
        (lambda p: p.admit("c"), "KVC503"),
        (lambda p: p.extend({"x": 1}), "KVC501"),
        (lambda p: p.extend({"a": 1, "x": 1}), "KVC501"),
        (lambda p: p.extend({"a": -1}), "KVC504"),
        (lambda p: p.extend({"a": 0}), "KVC504"),
        (lambda p: p.extend({"a": True}), "KVC504"),
        (lambda p: p.extend({"a": 2.0}), "KVC504"),
        (lambda p: p.extend({"a": 2}, {"a": 3}), "KVC504"),
        (lambda p: p.extend({"a": 2}, {"a": -1}), "KVC504"),
        (lambda p: p.extend({"a": 2}, {"b": 1}), "KVC504"),
        (lambda p: p.extend({"a": 1, "b": 25}), "KVC503"),
        (lambda p: p.extend({"a": 9, "b": 8}), "KVC503"),
        (lambda p: p.commit({"a": 1}), "KVC507"),
        (lambda p: p.preempt("x"), "KVC501"),
        (lambda p: p.release("x"), "KVC501"),
        (lambda p: p.slot_tables(["x"]), "KVC501"),
        (lambda p: p.committed("x"), "KVC501"),
    ],
)
def test_refused_calls_change_nothing(call, code):
    pages = manager(max_sequences=2, max_seq_len=24, max_tokens=16)
    pages.admit("a")
    pages.admit("b")
    before = snapshot(pages)
    assert code_of(call, pages) == code
    assert snapshot(pages) == before


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda p: p.extend({"a": 1}), "KVC505"),
        (lambda p: p.preempt("a"), "KVC505"),
        (lambda p: p.release("a"), "KVC505"),
        (lambda p: p.commit({"a": 5}), "KVC507"),
        (lambda p: p.commit({"a": -1}), "KVC507"),
        (lambda p: p.commit({"a": 1.0}), "KVC507"),
        (lambda p: p.commit({"a": 1, "b": 1}), "KVC507"),
    ],
)
def test_a_step_in_flight_must_be_committed_first(call, code):
    pages = manager()
    pages.admit("a")
    pages.admit("b")
    pages.extend({"a": 4})
    before = snapshot(pages)
    assert code_of(call, pages) == code
    assert snapshot(pages) == before


def test_the_manager_needs_no_torch():
    script = "import sys, kvc.runtime.cache_manager; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
