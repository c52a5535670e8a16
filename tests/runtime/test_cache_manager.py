"""The page manager against a brute-force model: no page twice, none leaked, every table entry right."""

import random
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


# The brute-force model: sets of pages computed from lengths alone, on every step.


def snapshot(pages):
    names = pages.sequences
    state = [(name, pages.committed(name), pages.scheduled(name), pages.held_slots(name)) for name in names]
    return state, pages.slot_tables(names).tolist(), pages.free_slots, pages.preempted


class Model:
    """Every sequence is (committed, scheduled, rollback); what must be held follows from the definition of coverage."""

    def __init__(self, cycles):
        self.cycles, self.state = cycles, {}

    def readable(self, coverage, page, size, position):
        """Whether any token of the page is read by a query at ``position`` or a later one."""
        last = page * size + size - 1
        if coverage.kind == "full" or page * size < coverage.keep_first:
            return True
        return last > position - coverage.window

    def pages(self, index, name):
        committed, scheduled, rollback = self.state[name]
        at, size = self.cycles[index], self.cycles[index].tokens_per_page
        total = committed + scheduled
        held = {page for page in range(-(-committed // size)) if self.readable(at.coverage, page, size, committed)}
        lowest = max(committed, total - rollback)
        new = range(-(-committed // size), -(-total // size))
        return held | {page for page in new if self.readable(at.coverage, page, size, lowest)}

    def check(self, pages, total_slots):
        used = {group: [] for group in range(len(total_slots))}
        for name in self.state:
            table = pages.slot_tables([name])
            for index, at in enumerate(self.cycles):
                row = table[index, 0]
                assert set(np.flatnonzero(row >= 0).tolist()) == self.pages(index, name)
                assert (row >= -1).all()
                used[at.pool_group] += row[row >= 0].tolist()
        for group, slots in used.items():
            assert len(slots) == len(set(slots)), "a slot is held twice"
            assert all(slot < total_slots[group] for slot in slots)
            assert pages.free_slots[group] + len(slots) == total_slots[group], "a slot leaked"

    def check_bounds(self, pages):
        """Pages of a twin: those of its first rows, and of its last ones before and after the step."""
        for name, (_, scheduled, rollback) in self.state.items():
            for at in self.cycles:
                if at.coverage.kind == "first_last":
                    last, size = at.coverage.window - 1 + rollback, at.tokens_per_page
                    kept, end = -(-at.coverage.keep_first // size), -(-last // size) + 1
                    held = int((pages.slot_tables([name])[at.id] >= 0).sum())
                    assert held <= kept + (2 if scheduled else 1) * end


# What `retain: {first: 5, last: 6}` makes of a lifecycle: the token in flight is one more than the last ones.
TWIN = Coverage("first_last", 7, keep_first=5)

CYCLES = {
    "full": [cycle()],
    "full and window": [cycle(), cycle(1, Coverage("window", 7), 2, 0)],
    "history and twin": [cycle(), cycle(1, TWIN, 4, 1)],
    "twin that shares slots, first tokens alone": [cycle(), cycle(1, Coverage("first_last", 1, keep_first=9), 4, 0)],
    "two groups": [cycle(), cycle(1, Coverage("window", 5, keep_first=3), 4, 1), cycle(2, FULL, 8, 1)],
}


@pytest.mark.parametrize("case", CYCLES)
@pytest.mark.parametrize("seed", range(7))
def test_random_schedules_against_the_model(case, seed):
    for schedule in range(100):
        random_schedule(CYCLES[case], random.Random(seed * 1000 + schedule))


def random_schedule(cycles, rng):
    slots = [rng.randrange(4, 30) for _ in range(1 + max(at.pool_group for at in cycles))]
    pages = manager(cycles, slots, max_sequences=3, max_seq_len=48, max_tokens=40)
    model = Model(cycles)
    for _ in range(rng.randrange(5, 25)):
        random_action(pages, model, rng)
        model.check(pages, slots)
        model.check_bounds(pages)


def random_action(pages, model, rng):
    idle = [name for name, (_, scheduled, _) in model.state.items() if not scheduled]
    action = rng.choice([admit, step, step, step, commit, commit, preempt, release])
    action(pages, model, idle, rng)


def admit(pages, model, idle, rng):
    name = rng.randrange(1000)
    if len(model.state) < 3 and name not in model.state:
        assert pages.admit(name) >= 0
        model.state[name] = (0, 0, 0)


def step(pages, model, idle, rng):
    chosen = rng.sample(idle, rng.randint(0, len(idle)))
    tokens = {name: rng.randint(1, 12) for name in chosen if model.state[name][0] <= 36}
    rollback = {name: rng.choice([0, rng.randint(0, n), n]) for name, n in tokens.items()}
    before = snapshot(pages)
    try:
        pages.extend(tokens, rollback)
    except OutOfPages as answer:
        assert snapshot(pages) == before
        assert any(short.needed > short.free for short in answer.groups.values())
        tokens = dict(answer.fitting)
        rollback = {name: min(rollback[name], n) for name, n in tokens.items()}
        pages.extend(tokens, rollback)
    for name, n in tokens.items():
        model.state[name] = (model.state[name][0], n, rollback[name])


def commit(pages, model, idle, rng):
    accepted = {n: rng.choice([0, s, s - min(r, s)]) for n, (_, s, r) in model.state.items() if s}
    pages.commit(accepted)
    for name, n in accepted.items():
        model.state[name] = (model.state[name][0] + n, 0, 0)


def preempt(pages, model, idle, rng):
    if idle:
        name = rng.choice(idle)
        assert pages.preempt(name) == model.state.pop(name)[0]
        assert name in pages.preempted


def release(pages, model, idle, rng):
    if idle or pages.preempted:
        name = rng.choice(idle + list(pages.preempted))
        pages.release(name)
        model.state.pop(name, None)
        assert name not in pages.preempted
