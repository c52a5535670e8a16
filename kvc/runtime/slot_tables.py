"""The slot tables of sequences: which pages a step needs, who gets which slot, and which go back.

What `CacheManager` does once a call is allowed; nothing here checks what it is asked for.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvc.diagnostics import fail
from kvc.plan.stale import ceil_div, stale_pages
from kvc.plan.types import Lifecycle
from kvc.runtime.out_of_pages import Holder, OutOfPages, SequenceId, Shortage
from kvc.runtime.prefix_chain import PrefixChain
from kvc.runtime.prefix_index import PrefixIndex, PrefixStatistics
from kvc.runtime.sequence_state import SequenceState
from kvc.runtime.shared_slots import SharedSlots
from kvc.runtime.slots import SlotAllocator
from kvc.specs.resolved import Domain


@dataclass(frozen=True)
class Limits:
    """What the compiled program serves at most; ``max_tokens`` is of one step, over all its sequences."""

    max_sequences: int
    max_seq_len: int
    max_tokens: int


class SlotTables:
    """One int32 table a lifecycle and sequence, and the free slots of every pool group."""

    def __init__(self, lifecycles: Sequence[Lifecycle], num_slots: Sequence[int], limits: Limits) -> None:
        self.lifecycles = tuple(lifecycles)
        self.limits = limits
        self.domains: frozenset[Domain] = frozenset(cycle.domain for cycle in self.lifecycles)
        self.table_width = max(ceil_div(limits.max_seq_len, cycle.tokens_per_page) for cycle in self.lifecycles)
        self._groups = [SharedSlots(count) for count in num_slots]
        self._prefixes = PrefixIndex(self.lifecycles, self._groups)
        self._prefix_statistics = PrefixStatistics()
        self._rows = SlotAllocator(limits.max_sequences)
        self._tables = np.full((len(self.lifecycles), limits.max_sequences, self.table_width), -1, np.int32)
        self._versions = [0] * limits.max_sequences  # of each row of the tables: equal numbers are equal entries
        self.changes = 0  # of any row so far
        self._sequences: dict[SequenceId, SequenceState] = {}
        self._preempted: dict[SequenceId, int] = {}

    @property
    def free_slots(self) -> tuple[int, ...]:
        """Slots of each pool group that can be taken, those of evictable prefixes among them."""
        return tuple(group.free for group in self._groups)

    def _find(self, sequence: SequenceId) -> SequenceState:
        if sequence in self._sequences:
            return self._sequences[sequence]
        if sequence in self._preempted:
            raise fail("KVC501", f"sequence {sequence!r} is preempted", help="admit it again and recompute its tokens")
        raise fail("KVC501", f"no sequence {sequence!r}", help="admit it first")

    def _holds(self, sequence: SequenceState, cycle: Lifecycle, start: int, length: int, lowest: int) -> bool:
        """Whether a lifecycle has the pages of tokens ``start`` to ``length`` that are read once ``lowest`` are
        committed."""
        if not sequence.keeps(cycle):
            return True
        pages = _live_pages(cycle, start // cycle.tokens_per_page, length, lowest)
        return bool((self._tables[cycle.id, sequence.row, pages] >= 0).all())

    def _new_pages(self, sequence: SequenceState, count: int, rollback: int) -> list[list[int]]:
        """Per lifecycle, the pages that ``count`` more tokens need and the sequence has not got."""
        length = sequence.committed + count
        lowest = max(sequence.committed, length - rollback) - sequence.unsettled
        found = lowest if sequence.chain is None else min(lowest, self._prefixes.last_prefix(length))
        return [
            _live_pages(cycle, sequence.ends[cycle.id], length, found if self._prefixes.is_block(cycle) else lowest)
            if sequence.keeps(cycle)
            else []
            for cycle in self.lifecycles
        ]

    def _count(self, new: Iterable[list[list[int]]]) -> list[int]:
        """Slots of each pool group that these pages take."""
        needed = [0] * len(self._groups)
        for pages in new:
            for cycle in self.lifecycles:
                needed[cycle.pool_group] += len(pages[cycle.id])
        return needed

    def _take(self, sequence: SequenceState, pages: list[list[int]], count: int) -> None:
        sequence.scheduled, sequence.quiet = count, 0
        for cycle in self.lifecycles:
            if pages[cycle.id]:
                slots = self._groups[cycle.pool_group].take(len(pages[cycle.id]))
                self._tables[cycle.id, sequence.row, pages[cycle.id]] = slots
                self._changed(sequence.row)
            sequence.ends[cycle.id] = ceil_div(sequence.committed + count, cycle.tokens_per_page)

    def _offer(self, sequence: SequenceState, again: bool = False) -> None:
        if sequence.chain is not None:
            self._prefixes.offer(sequence.chain, self._tables[:, sequence.row], sequence.lowest, again)

    def _close(self, sequence: SequenceState) -> None:
        """Name the pages that became whole, and give back those that nothing will read."""
        for cycle in self.lifecycles:
            if not sequence.keeps(cycle):
                self._give(sequence, cycle, 0, sequence.ends[cycle.id])
        self._offer(sequence)
        for cycle in self.lifecycles:
            self._trim(sequence, cycle)
        sequence.quiet = self._quiet_until(sequence)

    def _changed(self, row: int) -> None:
        self.changes += 1
        self._versions[row] = self.changes

    def _quiet_until(self, sequence: SequenceState) -> int:
        """The length up to which a closed sequence needs no page more and nothing that it holds becomes stale."""
        if sequence.unsettled or sequence.missed:
            return 0
        return min(self.limits.max_seq_len, *(self._quiet_in(sequence, cycle) for cycle in self.lifecycles))

    @staticmethod
    def _quiet_in(sequence: SequenceState, cycle: Lifecycle) -> int:
        """That length for one lifecycle: within its last page, and before more pages are stale than were released."""
        lengths = range(sequence.committed, sequence.ends[cycle.id] * cycle.tokens_per_page + 1)
        released = sequence.stale[cycle.id]

        def stale(length: int) -> int:
            return stale_pages(cycle.coverage, length, cycle.tokens_per_page).stop

        return sequence.committed + bisect_right(lengths, released, key=stale) - 1

    def _trim(self, sequence: SequenceState, cycle: Lifecycle) -> None:
        """Give back the pages past the committed length and those that are stale at the lowest one."""
        end = ceil_div(sequence.committed, cycle.tokens_per_page)
        stale = stale_pages(cycle.coverage, sequence.lowest, cycle.tokens_per_page)
        self._give(sequence, cycle, end, sequence.ends[cycle.id])
        self._give(sequence, cycle, max(stale.start, sequence.stale[cycle.id]), stale.stop)
        sequence.ends[cycle.id] = end
        sequence.stale[cycle.id] = max(sequence.stale[cycle.id], stale.stop)

    def _give(self, sequence: SequenceState, cycle: Lifecycle, start: int, stop: int) -> None:
        if start >= stop:
            return
        entries = self._tables[cycle.id, sequence.row, start:stop]
        self._groups[cycle.pool_group].give(entries[entries >= 0][::-1].tolist())
        entries[:] = -1
        self._changed(sequence.row)

    def _slots_of(self, sequence: SequenceState) -> dict[int, list[int]]:
        """The slots held in each pool group, deepest page first; at equal depth later lifecycles first."""
        held: dict[int, list[tuple[int, int, int]]] = {group: [] for group in range(len(self._groups))}
        for cycle in self.lifecycles:
            table = self._tables[cycle.id, sequence.row]
            pages = np.flatnonzero(table >= 0)
            ends = ((pages + 1) * cycle.tokens_per_page).tolist()
            held[cycle.pool_group] += zip(ends, [cycle.id] * len(ends), table[pages].tolist(), strict=True)
        return {group: [slot for _, _, slot in sorted(pages, reverse=True)] for group, pages in held.items()}

    def _share(self, sequence: SequenceState, chain: PrefixChain, length: int) -> None:
        """Put the pages of a prefix into the tables, as if the sequence had computed it."""
        for cycle in self.lifecycles:
            pages, slots = self._prefixes.pages(cycle, chain, length)
            for slot in slots:
                self._groups[cycle.pool_group].share(slot)
            self._tables[cycle.id, sequence.row, pages] = slots
            sequence.ends[cycle.id] = length // cycle.tokens_per_page
        sequence.committed = length
        self._changed(sequence.row)

    # The answer when slots run out

    def _out_of_pages(
        self, tokens: Mapping[SequenceId, int], rollback: Mapping[SequenceId, int], needed: list[int]
    ) -> OutOfPages:
        groups = {i: Shortage(needed[i], group.free, group.num_slots) for i, group in enumerate(self._groups)}
        own = self._count_distinct(tokens)
        holders = (Holder(name, self._count_unshared(s)) for name, s in self._idle_ones())
        return OutOfPages(
            groups,
            self._fitting(tokens, rollback),
            tuple(holder for holder in holders if any(holder.slots.values())),
            solvable=all(short.needed + own[group] <= short.total for group, short in groups.items()),
        )

    def _idle_ones(self) -> Iterable[tuple[SequenceId, SequenceState]]:
        return ((name, s) for name, s in self._sequences.items() if not (s.scheduled or s.unsettled))

    def _count_unshared(self, sequence: SequenceState) -> dict[int, int]:
        """Slots that nobody else holds."""
        held = self._slots_of(sequence).items()
        return {group: sum(self._groups[group].references(slot) == 1 for slot in slots) for group, slots in held}

    def _count_distinct(self, sequences: Iterable[SequenceId]) -> dict[int, int]:
        held = [self._slots_of(self._find(name)) for name in sequences]
        return {group: len({slot for slots in held for slot in slots[group]}) for group in range(len(self._groups))}

    def _fitting(self, tokens: Mapping[SequenceId, int], rollback: Mapping[SequenceId, int]) -> dict[SequenceId, int]:
        free, fitting = list(self.free_slots), {}
        for name, count in tokens.items():
            count, needed = self._longest(self._find(name), count, rollback.get(name, 0), free)
            free = [left - need for left, need in zip(free, needed, strict=True)]
            fitting[name] = count
        return {name: count for name, count in fitting.items() if count}

    def _longest(self, sequence: SequenceState, count: int, rollback: int, free: list[int]) -> tuple[int, list[int]]:
        """The most tokens, up to ``count``, whose pages fit in ``free``, and the slots that they take."""

        def needs(tokens: int) -> list[int]:
            return self._count([self._new_pages(sequence, tokens, rollback)]) if tokens else [0] * len(free)

        def fits(tokens: int) -> bool:
            return all(need <= left for need, left in zip(needs(tokens), free, strict=True))

        low, high = 0, count + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low, needs(low)


def _live_pages(cycle: Lifecycle, start: int, length: int, lowest: int) -> list[int]:
    """Pages from ``start`` on that hold any of ``length`` tokens and are still read once ``lowest`` are committed."""
    stale = stale_pages(cycle.coverage, lowest, cycle.tokens_per_page)
    return [page for page in range(start, ceil_div(length, cycle.tokens_per_page)) if page not in stale]
