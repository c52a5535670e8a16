"""What is made again only where it changes equals what is made anew: page tables, lengths and packed bytes."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_batch import SECTIONS
from test_page_schedules import CASES

from kvc.diagnostics import KvcError
from kvc.graphs.program import PHASES, Section
from kvc.runtime.batch import Request, StepShaper, make_step
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.packing import StepPacker
from kvc.runtime.step_buffer import StepBuffer

LIMITS = Limits(max_sequences=4, max_seq_len=60, max_tokens=40)
BUCKETS = (1, 2, 4)
SEEDS = range(60)


class Thorough(CacheManager):
    """Looks at every sequence in every call."""

    def _extends_quietly(self, *_):
        return False

    def _ends_quietly(self, *_):
        return False


class Pair:
    """The same calls to a manager and a thorough one; they answer alike and hold alike."""

    def __init__(self, cycles, slots):
        self.quick, self.thorough = (kind(cycles, slots, LIMITS) for kind in (CacheManager, Thorough))

    def __call__(self, name, *args):
        quick, thorough = (self.answer(manager, name, args) for manager in (self.quick, self.thorough))
        assert quick == thorough
        assert (self.quick._tables == self.thorough._tables).all()
        assert self.quick.free_slots == self.thorough.free_slots
        for one, other in zip(self.quick._sequences.values(), self.thorough._sequences.values(), strict=True):
            assert (one.committed, one.scheduled, one.unsettled, one.ends, one.stale, one.missed) == (
                other.committed, other.scheduled, other.unsettled, other.ends, other.stale, other.missed
            )  # fmt: skip
        return quick

    @staticmethod
    def answer(manager, name, args):
        try:
            return getattr(manager, name)(*args)
        except KvcError as error:
            return str(error)


def schedule(rng, pair, names, count):
    """Random calls, most of them single tokens; yields what was extended, before its commit."""
    for _ in range(count):
        held = list(pair.quick.sequences)
        if len(held) < LIMITS.max_sequences and rng.random() < 0.3:
            name = next(name for name in names if name not in held)
            pair("admit", name)
            if rng.random() < 0.5:
                pair("reuse", name, [rng.randrange(2) for _ in range(rng.choice([0, 9, 20]))])
        elif held and rng.random() < 0.1:
            pair(rng.choice(["release", "preempt"]), rng.choice(held))
        elif held:
            chosen = rng.sample(held, rng.randint(1, len(held)))
            tokens = {name: rng.choice([1, 1, 1, 1, 2, 5, 61, True]) for name in chosen}
            rollback = {name: n for name, n in tokens.items() if rng.random() < 0.8}
            if pair("extend", tokens, rollback) is None:
                yield tokens
                finish(rng, pair, tokens)


def finish(rng, pair, tokens):
    """Commit, record tokens, overlap or get it wrong."""
    for name in tokens:
        if rng.random() < 0.5:
            pair("record_tokens", name, [rng.randrange(2)])
    if rng.random() < 0.1:
        pair("commit", dict.fromkeys(tokens, 99))
    accepted = {name: rng.choice([n, n, n, 0, rng.randint(0, n)]) for name, n in tokens.items()}
    unsettled = {name: n for name, n in accepted.items() if n and rng.random() < 0.1}
    if pair("commit", accepted, unsettled) is not None:
        pair("commit", dict.fromkeys(tokens, 0))
    pair("settle", {name: rng.randint(0, n) for name, n in unsettled.items()})


@pytest.mark.parametrize("case", CASES)
def test_quiet_steps_hold_the_same_pages(case):
    slots = [40] * (1 + max(at.pool_group for at in CASES[case]))
    for seed in SEEDS:
        rng, pair = random.Random(seed), Pair(CASES[case], slots)
        for _ in schedule(rng, pair, "abcdefgh", 40):
            pass


def test_most_single_tokens_are_quiet():
    manager = CacheManager(CASES["full"], [40], LIMITS)
    manager.admit("a")
    quiet = 0
    for _ in range(40):
        quiet += manager._extends_quietly("a", 1, manager.domains)
        manager.extend({"a": 1})
        manager.commit({"a": 1})
    assert quiet == 30  # pages of 4 tokens


@pytest.mark.parametrize("case", ["full and window", "history and twin"])
def test_refilled_bytes_are_packed_bytes(case):
    cycles, seen = CASES[case], 0
    sections = (*SECTIONS[1:], Section("slot_tables", ("G", "B", "W")), Section("scheduled", ("B",)))
    program = SimpleNamespace(step=dict.fromkeys(PHASES, sections), buckets=BUCKETS)
    for seed in SEEDS:
        rng, pair = random.Random(seed), Pair(cycles, [40] * (1 + max(at.pool_group for at in cycles)))
        manager = pair.quick
        shaper, buffer = StepShaper(manager, BUCKETS), StepBuffer(program, manager, LIMITS, torch.device("cpu"))
        packer, before = StepPacker(program.step, manager), None
        for tokens in schedule(rng, pair, "abcdefgh", 40):
            counts = set(tokens.values())
            phase = "generation" if len(counts) == 1 else "context"
            requests = [Request(name, n, phase) for name, n in tokens.items()]
            step, fresh = shaper.shape(requests), make_step(requests, manager, BUCKETS)
            assert step.parts == fresh.parts
            found = buffer.send(step, {})
            placed = packer.place(fresh)
            expected = np.full(packer.capacity(LIMITS, BUCKETS), 99, np.int32)
            end = packer.pack(fresh, placed, expected)
            assert (buffer.tensor[:end].numpy() == expected[:end]).all()
            for at in placed:
                assert (
                    found[at.phase][f"step.{at.name}"].numpy() == expected[at.offset : at.stop].reshape(at.shape)
                ).all()
            seen += before is step.parts
            before = step.parts
    assert seen > 50


def test_equal_numbers_are_not_always_tokens():
    manager = CacheManager(CASES["full"], [40], LIMITS)
    manager.admit("a")
    shaper = StepShaper(manager, BUCKETS)
    shaper.shape([Request("a", 1, "generation")])
    for wrong in (True, 1.0):
        with pytest.raises(KvcError, match="KVC504"):
            shaper.shape([Request("a", wrong, "generation")])
    manager.release("a")
    with pytest.raises(KvcError, match="KVC501"):
        shaper.shape([Request("a", 1, "generation")])


@pytest.mark.gpu
def test_a_buffer_is_not_packed_while_it_is_copied():
    """The device is busy, so copies are late; every step's bytes arrive as they were packed."""
    manager = CacheManager(CASES["full"], [40], LIMITS)
    program = SimpleNamespace(step=dict.fromkeys(PHASES, (SECTIONS[1],)), buckets=BUCKETS)
    buffer = StepBuffer(program, manager, LIMITS, torch.device("cuda"))
    shaper, arrived = StepShaper(manager, BUCKETS), []
    manager.admit("a")
    torch.cuda._sleep(200_000_000)
    for _ in range(20):
        found = buffer.send(shaper.shape([Request("a", 1, "generation")]), {})
        arrived.append(found["generation"]["step.committed"].clone())
        manager.extend({"a": 1})
        manager.commit({"a": 1})
    assert [one.tolist() for one in arrived] == [[n] for n in range(20)]
