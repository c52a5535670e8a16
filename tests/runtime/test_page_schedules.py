"""10,000 random schedules of admit, reuse, extend, roll back, preempt and release against the brute-force model."""

import random
from collections import Counter
from fractions import Fraction

import pytest
from page_model import ModelSequence, PageModel, needed_pages

from kvc.plan.types import Lifecycle
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.out_of_pages import OutOfPages
from kvc.specs.resolved import Coverage

SCHEDULES = 10_000
CHUNKS = (1, 2, 3, 4, 5, 8, 11, 16, 24, 24)
LIMITS = Limits(max_sequences=3, max_seq_len=48, max_tokens=72)

FULL = Coverage()
# What `retain: {first: 5, last: 6}` makes of a lifecycle: the token in flight is one more than the last ones.
TWIN = Coverage("first_last", 7, keep_first=5)


def cycles(*of):
    """Lifecycles of (coverage, tokens a page, pool group)."""
    return [
        Lifecycle(i, coverage, domain[0] if domain else "target", size, group, (i,), Fraction(1), 0)
        for i, (coverage, size, group, *domain) in enumerate(of)
    ]


CASES = {
    "full": cycles((FULL, 4, 0)),
    "full, a token a page": cycles((FULL, 1, 0)),
    "window": cycles((Coverage("window", 7), 4, 0)),
    "full and window": cycles((FULL, 4, 0), (Coverage("window", 7), 2, 0)),
    "pages of 2 and 3": cycles((FULL, 3, 0), (Coverage("window", 5, keep_first=2), 2, 1)),
    "history and twin": cycles((FULL, 4, 0), (TWIN, 4, 1)),
    "small pages": cycles((FULL, 2, 0), (Coverage("first_last", 9, keep_first=3), 2, 1)),
    "twin that shares slots, first tokens alone": cycles((FULL, 4, 0), (Coverage("first_last", 1, keep_first=9), 4, 0)),
    "two groups": cycles((FULL, 8, 0), (Coverage("window", 5, keep_first=3), 4, 1), (TWIN, 8, 1)),
    "draft layers": cycles((FULL, 4, 0), (TWIN, 4, 1), (FULL, 4, 0, "draft")),
}
PROMPTS = [[random.Random(seed).randrange(2) for _ in range(48)] for seed in range(2)]

# What has to happen in every case, or the schedules are too tame; skips where the last tokens matter.
EVENTS = {"reuse", "shared with a running sequence", "found after release", "eviction", "out of pages", "roll back"}
SKIPS = {"a longer prefix where a shorter one is not held"}


@pytest.mark.parametrize("case", CASES)
def test_random_schedules_against_the_model(case):
    seen = Counter()
    for seed in range(SCHEDULES // len(CASES)):
        try:
            Schedule(CASES[case], seed, seen).run()
        except BaseException as error:
            error.add_note(f"case {case!r}, seed {seed}")
            raise
    skipping = any(at.coverage.window not in (None, 1) for at in CASES[case])
    assert {event for event, times in seen.items() if times} == EVENTS | (SKIPS if skipping else set())


class Schedule:
    """One manager, its model and the generator that chooses what happens."""

    def __init__(self, of, seed, seen):
        self.seen = seen
        self.rng = random.Random(seed)
        slots = [self.rng.randrange(4, 26) for _ in range(1 + max(at.pool_group for at in of))]
        self.manager, self.model = CacheManager(of, slots, LIMITS), PageModel(of, slots)

    def run(self):
        for _ in range(self.rng.randrange(8, 22)):
            self.rng.choice(self.possible())()
            self.model.check(self.manager)

    def possible(self):
        idle, sequences = self.idle(), self.model.sequences
        actions = [self.admit] * 4 if len(sequences) < LIMITS.max_sequences else []
        actions += [self.step] * 3 if idle else []
        actions += [self.commit] * 4 if len(idle) < len(sequences) else []
        return actions + ([self.preempt, self.release] if idle else [])

    def idle(self):
        return [sequence for sequence in self.model.sequences.values() if not sequence.scheduled]

    def admit(self):
        model, rng = self.model, self.rng
        again = rng.choice([None, *model.preempted])
        name = max([0, *model.sequences, *model.preempted]) + 1 if again is None else again
        recompute, tokens = model.preempted.pop(again, (0, self.prompt()))
        assert self.manager.admit(name) == recompute
        sequence = model.sequences[name] = ModelSequence(name, model.block)
        if rng.random() < 0.9:
            self.reuse(sequence, tokens)

    def prompt(self):
        cut = self.rng.choice([8, 16, 24, 48, 48])
        prompt = self.rng.choice(PROMPTS)[:cut] + self.rng.choices((0, 1), k=48 - cut)
        return prompt[: self.rng.choice([0, 5, 16, 24, 32, 44, self.rng.randint(0, 44)])]

    def reuse(self, sequence, tokens):
        model = self.model
        sequence.tokens, sequence.known = list(tokens), len(tokens)
        sequence.salt, sequence.records = self.rng.choice([""] * 7 + ["adapter"]), self.rng.random() < 0.7
        expected = model.longest(sequence, model.cycles)
        history = [at for at in model.cycles if at.coverage.kind == "full"] or model.cycles
        answer = self.manager.reuse(sequence.name, tokens, sequence.salt)
        assert (answer.tokens, answer.history_tokens) == (expected, model.longest(sequence, history))
        assert bool(answer.why) == (answer.tokens < answer.history_tokens)
        self.watch_reuse(sequence, expected)
        model.share(sequence, expected)
        shared = dict(sequence.pages)
        model.read_tables(self.manager, [sequence.name])
        assert sequence.pages == shared

    def watch_reuse(self, sequence, length):
        model, lengths = self.model, range(self.model.block, length, self.model.block)
        slots = [
            (at.pool_group, model.index[model.name_of(at, sequence, page)])
            for at in model.cycles
            for page in needed_pages(at.coverage, at.tokens_per_page, length)
        ]
        events = {
            "reuse": length,
            "shared with a running sequence": any(model.holders(*slot) for slot in slots),
            "found after release": any(slot in model.given_back[group] for group, slot in slots),
            "a longer prefix where a shorter one is not held": not all(
                model.holds(at, sequence, n) for n in lengths for at in model.cycles
            ),
        }
        self.seen.update(event for event, happened in events.items() if happened)

    def step(self):
        idle = self.idle()
        chosen = self.rng.sample(idle, self.rng.randint(1, len(idle)))
        tokens = {s.name: self.rng.choice(CHUNKS) for s in chosen if s.committed <= 24}
        rollback = {name: self.rng.choice([0, 0, self.rng.randint(0, n), n]) for name, n in tokens.items()}
        try:
            self.manager.extend(tokens, rollback)
        except OutOfPages as answer:
            self.seen["out of pages"] += 1
            self.model.check(self.manager)
            assert any(short.needed > short.free for short in answer.groups.values())
            tokens = dict(answer.fitting)
            rollback = {name: min(rollback[name], n) for name, n in tokens.items()}
            self.manager.extend(tokens, rollback)
        self.extended(tokens, rollback)

    def extended(self, tokens, rollback):
        model = self.model
        needed = [0] * len(model.slots)
        for name, n in tokens.items():
            sequence = model.sequences[name]
            sequence.scheduled, sequence.rollback = n, rollback[name]
            given = sequence.tokens[sequence.committed : sequence.committed + n]
            sequence.flight = given + self.rng.choices((0, 1), k=n - len(given))
            for at in model.cycles:
                held = sum(cycle == at.id for cycle, _ in sequence.pages)
                needed[at.pool_group] += len(sequence.expected_pages(at)) - held
        for group, count in enumerate(needed):
            self.seen["eviction"] += model.evict(group, count)
        model.read_tables(self.manager, list(tokens))
        for name in tokens:
            model.write(model.sequences[name])

    def commit(self):
        accepted = {}
        for sequence in self.model.sequences.values():
            n, least = sequence.scheduled, sequence.scheduled - sequence.rollback
            if n and self.rng.random() < 0.9:
                accepted[sequence.name] = self.rng.choice([0, n, least, self.rng.randint(least, n)])
                self.seen["roll back"] += accepted[sequence.name] < n
                self.record(sequence, accepted[sequence.name])
        self.manager.commit(accepted)
        for name, count in accepted.items():
            self.model.commit(self.model.sequences[name], count)

    def record(self, sequence, accepted):
        """Tell the manager which generated tokens are accepted."""
        new = sequence.flight[len(sequence.tokens) - sequence.committed : accepted]
        if sequence.records and new:
            self.manager.record_tokens(sequence.name, new)
            sequence.known += len(new)

    def preempt(self):
        sequence = self.rng.choice(self.idle())
        assert self.manager.preempt(sequence.name) == sequence.committed
        self.model.drop(sequence.name)
        self.model.preempted[sequence.name] = (sequence.committed, sequence.tokens)

    def release(self):
        names = [sequence.name for sequence in self.idle()] + list(self.model.preempted)
        name = self.rng.choice(names)
        self.manager.release(name)
        if self.model.preempted.pop(name, None) is None:
            self.model.drop(name)
