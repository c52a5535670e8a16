"""A brute-force model of the page manager, from the definitions alone: lists, sets and every row that was written.

It imports nothing of the manager. Pages are found by comparing the tokens from the start; what a lifecycle must hold
follows from asking, token by token, who reads it.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import lcm


@lru_cache(None)
def read_later(coverage, page, size, position):
    """Whether any token of the page is read by a query at ``position`` or a later one."""
    if coverage.kind == "full" or page * size < coverage.keep_first:
        return True
    return page * size + size - 1 > position - coverage.window


@lru_cache(None)
def needed_pages(coverage, size, tokens):
    """The pages of ``tokens`` stored tokens that the next ones read."""
    return [page for page in range(-(-tokens // size)) if read_later(coverage, page, size, tokens)]


@lru_cache(None)
def expected_pages(coverage, size, committed, scheduled, rollback, block):
    """Those of the committed tokens, and those of the step's that any outcome of it needs.

    ``block``: of a sequence whose tokens are known and whose pages are blocks. Those that the longest prefix of whole
    blocks with a token left needs stay too.
    """
    total = committed + scheduled
    lowest = max(committed, total - rollback)
    if block == size:
        lowest = min(lowest, (total - 1) // block * block)
    new = range(-(-committed // size), -(-total // size))
    return {*needed_pages(coverage, size, committed)} | {p for p in new if read_later(coverage, p, size, lowest)}


def hashes(tokens, salt):
    """One number for each token and all before it."""
    return list(accumulate(tokens, lambda prefix, token: hash((prefix, token)), initial=hash(salt)))[1:]


@dataclass
class ModelSequence:
    """``tokens``: the ids it has been given or has accepted; ``known``: how many of them the manager was told."""

    name: int
    block: int
    tokens: list = field(default_factory=list)
    known: int | None = None
    salt: str = ""
    records: bool = False
    committed: int = 0
    scheduled: int = 0
    rollback: int = 0
    offered: int = 0
    flight: list = field(default_factory=list)  # ids of the step in flight
    pages: dict = field(default_factory=dict)  # (lifecycle, page) -> slot, as the manager's tables say

    def expected_pages(self, at):
        block = None if self.known is None else self.block
        return expected_pages(at.coverage, at.tokens_per_page, self.committed, self.scheduled, self.rollback, block)


class PageModel:
    """What the manager must hold and find, and what lies in every slot."""

    def __init__(self, cycles, slots):
        self.cycles, self.slots = cycles, slots
        self.block = lcm(*(at.tokens_per_page for at in cycles))
        self.ahead = any(at.domain == "draft" for at in cycles)
        self.sequences, self.preempted = {}, {}
        self.index = {}  # (lifecycle, page, tokens up to the end of its block, salt) -> slot
        self.given_back = [[] for _ in slots]  # slots that are in the index and held by nobody, oldest first
        self.rows = {}  # (group, slot, row) -> (lifecycle, hash of the tokens up to this one and salt)

    # What sequences hold

    def read_tables(self, manager, names):
        """Take over the manager's tables after comparing them with what must be held."""
        tables = manager.slot_tables(names).tolist()
        for index, name in enumerate(names):
            sequence = self.sequences[name]
            sequence.pages = {}
            for at in self.cycles:
                table = tables[at.id][index]
                held = {(at.id, page): slot for page, slot in enumerate(table) if slot != -1}
                assert {page for _, page in held} == sequence.expected_pages(at), (name, at.id)
                sequence.pages.update(held)

    def holders(self, group, slot):
        return [
            (sequence, page)
            for sequence in self.sequences.values()
            for (cycle, page), held in sequence.pages.items()
            if held == slot and self.cycles[cycle].pool_group == group
        ]

    def held_slots(self, group):
        return [
            slot
            for sequence in self.sequences.values()
            for (cycle, _), slot in sequence.pages.items()
            if self.cycles[cycle].pool_group == group
        ]

    # What can be found

    def name_of(self, at, sequence, page):
        """None before the block is whole and known."""
        end = (page * at.tokens_per_page // self.block + 1) * self.block
        if sequence.known is None or end + self.ahead > sequence.known:
            return None
        return at.id, page, tuple(sequence.tokens[: end + (at.domain == "draft")]), sequence.salt

    def offer(self, sequence, again=False):
        """Whole blocks become findable, unless another sequence's page of the same tokens is."""
        whole = min(sequence.committed, (sequence.known or 0) - self.ahead) // self.block * self.block
        start = 0 if again else sequence.offered
        for (cycle, page), slot in sequence.pages.items():
            size = self.cycles[cycle].tokens_per_page
            if start <= page * size < whole:
                self.index.setdefault(self.name_of(self.cycles[cycle], sequence, page), slot)
        sequence.offered = max(sequence.offered, whole)

    def longest(self, sequence, cycles):
        """The longest prefix of whole blocks, one token left, that these lifecycles hold."""
        most = max(0, len(sequence.tokens) - 1) // self.block
        usable = (n for n in range(most, 0, -1) if all(self.holds(at, sequence, n * self.block) for at in cycles))
        return next(usable, 0) * self.block

    def holds(self, at, sequence, length):
        pages = needed_pages(at.coverage, at.tokens_per_page, length)
        return all(self.name_of(at, sequence, page) in self.index for page in pages)

    # Calls that went through

    def share(self, sequence, length):
        """A prefix of that length was reused; the pages are the ones of the index."""
        sequence.committed = length
        for at in self.cycles:
            for page in needed_pages(at.coverage, at.tokens_per_page, length):
                slot = self.index[self.name_of(at, sequence, page)]
                sequence.pages[at.id, page] = slot
                if slot in self.given_back[at.pool_group]:
                    self.given_back[at.pool_group].remove(slot)

    def evict(self, group, needed):
        """Make room: the pages given back longest ago can be found no more; how many."""
        free = self.slots[group] - len(set(self.held_slots(group))) - len(self.given_back[group])
        evicted = max(0, needed - free)
        for _ in range(evicted):
            slot = self.given_back[group].pop(0)
            self.index = {
                name: at for name, at in self.index.items() if at != slot or self.cycles[name[0]].pool_group != group
            }
        return evicted

    def write(self, sequence):
        """The step's rows, as the device writes them: on no page that another one holds or that can be found."""
        prefixes = hashes(sequence.tokens[: sequence.committed] + sequence.flight, sequence.salt)
        for (cycle, page), slot in sequence.pages.items():
            size, group = self.cycles[cycle].tokens_per_page, self.cycles[cycle].pool_group
            rows = range(max(page * size, sequence.committed), min((page + 1) * size, len(prefixes)))
            if rows:
                assert len(self.holders(group, slot)) == 1, "a shared page is written"
                assert not self.findable(group, slot), "a page that can be found is written"
            for position in rows:
                self.rows[group, slot, position % size] = (cycle, prefixes[position])

    def findable(self, group, slot):
        return any(at == slot and self.cycles[name[0]].pool_group == group for name, at in self.index.items())

    def let_go(self, sequence, pages):
        """Pages that a sequence holds no more, in this order."""
        for cycle, page in pages:
            slot, group = sequence.pages.pop((cycle, page)), self.cycles[cycle].pool_group
            if not self.holders(group, slot) and self.findable(group, slot):
                self.given_back[group].append(slot)

    def commit(self, sequence, accepted):
        total = sequence.committed + sequence.scheduled
        if sequence.committed + accepted > len(sequence.tokens):
            sequence.tokens = sequence.tokens[: sequence.committed] + sequence.flight[:accepted]
        sequence.committed += accepted
        sequence.scheduled = sequence.rollback = 0
        self.offer(sequence)
        for at in self.cycles:
            end = -(-sequence.committed // at.tokens_per_page)
            held = sorted((page for cycle, page in sequence.pages if cycle == at.id), reverse=True)
            needed = needed_pages(at.coverage, at.tokens_per_page, sequence.committed)
            self.let_go(sequence, [(at.id, page) for page in held if page >= end])
            self.let_go(sequence, [(at.id, page) for page in held if page < end and page not in needed])
        assert sequence.committed <= total

    def drop(self, name):
        """Deepest page first, at equal depth the later lifecycle's."""
        sequence = self.sequences[name]
        self.offer(sequence, again=True)

        def depth(held):
            return (held[1] + 1) * self.cycles[held[0]].tokens_per_page, held[0]

        self.let_go(sequence, sorted(sequence.pages, key=depth, reverse=True))
        return self.sequences.pop(name)

    # Comparison

    def check(self, manager):
        """Tables, slots and the content of every page against what must be."""
        names = list(self.sequences)
        assert manager.sequences == tuple(names)
        self.read_tables(manager, names)
        free = manager.free_slots
        for group, total in enumerate(self.slots):
            held = self.held_slots(group)
            assert all(0 <= slot < total for slot in held)
            assert free[group] == total - len(set(held)), "a slot leaked"
            assert not set(held) & set(self.given_back[group]), "an evictable slot is held"
            for slot in [slot for slot, times in Counter(held).items() if times > 1]:
                self.check_shared(group, slot)
        for sequence in self.sequences.values():
            self.check_rows(sequence)
            self.check_bound(sequence)

    def check_shared(self, group, slot):
        """Only a whole committed page of one chain has several holders, each at the same place."""
        holders = self.holders(group, slot)
        assert len({page for _, page in holders}) == 1
        assert len({sequence.name for sequence, _ in holders}) == len(holders), "a slot is held twice"
        assert self.findable(group, slot)

    def check_rows(self, sequence):
        prefixes = hashes(sequence.tokens[: sequence.committed], sequence.salt)
        for (cycle, page), slot in sequence.pages.items():
            at = self.cycles[cycle]
            size, group = at.tokens_per_page, at.pool_group
            for row, prefix in enumerate(prefixes[page * size : (page + 1) * size]):
                assert self.rows[group, slot, row] == (cycle, prefix), "a page holds rows of other tokens"

    def check_bound(self, sequence):
        """Pages of a twin: those of its first rows, and of its last ones before and after the step."""
        for at in self.cycles:
            if at.coverage.kind == "first_last":
                last, size = at.coverage.window - 1 + sequence.rollback, at.tokens_per_page
                kept, end = -(-at.coverage.keep_first // size), -(-last // size) + 1
                held = sum(cycle == at.id for cycle, _ in sequence.pages)
                assert held <= kept + (2 if sequence.scheduled else 1) * end
