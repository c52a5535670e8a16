"""Which sequence holds which slots: host only, numpy only, the same for every device.

A **slot** of a pool group holds one page of each buffer of a lifecycle; a sequence has one int32 slot table a lifecycle
whose entry `p` is the slot of tokens `[p*S, (p+1)*S)`, -1 where none is held. Every call either does all that it was
asked or raises and changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvc.diagnostics import fail
from kvc.plan.stale import ceil_div, stale_pages
from kvc.plan.types import Lifecycle
from kvc.runtime.out_of_pages import Holder, OutOfPages, SequenceId, Shortage
from kvc.runtime.prefix_chain import PrefixChain, TokenIds, token_ids
from kvc.runtime.prefix_index import PrefixIndex, PrefixStatistics, Reuse
from kvc.runtime.shared_slots import SharedSlots
from kvc.runtime.slots import SlotAllocator


@dataclass(frozen=True)
class Limits:
    """What the compiled program serves at most; ``max_tokens`` is of one step, over all its sequences."""

    max_sequences: int
    max_seq_len: int
    max_tokens: int


@dataclass
class _Sequence:
    """``ends``: per lifecycle, the first page not looked at yet; ``stale``: the pages before it that were released.

    ``chain``: its tokens, None where nobody said what they are.
    """

    id: SequenceId
    row: int
    ends: list[int]
    stale: list[int]
    committed: int = 0
    scheduled: int = 0
    chain: PrefixChain | None = None


class CacheManager:
    """Slot tables of all admitted sequences.

    One step is `extend` (pages for this step's tokens) and `commit` (how many of them were accepted). ``num_slots`` has
    one entry a pool group. Slots are given lowest first, so equal schedules give equal tables.
    """

    def __init__(self, lifecycles: Sequence[Lifecycle], num_slots: Sequence[int], limits: Limits) -> None:
        self.lifecycles = tuple(lifecycles)
        self.limits = limits
        self.table_width = max(ceil_div(limits.max_seq_len, cycle.tokens_per_page) for cycle in self.lifecycles)
        self._groups = [SharedSlots(count) for count in num_slots]
        self._prefixes = PrefixIndex(self.lifecycles, self._groups)
        self._prefix_statistics = PrefixStatistics()
        self._rows = SlotAllocator(limits.max_sequences)
        self._tables = np.full((len(self.lifecycles), limits.max_sequences, self.table_width), -1, np.int32)
        self._sequences: dict[SequenceId, _Sequence] = {}
        self._preempted: dict[SequenceId, int] = {}

    @property
    def sequences(self) -> tuple[SequenceId, ...]:
        """Admitted sequences, oldest first."""
        return tuple(self._sequences)

    @property
    def preempted(self) -> dict[SequenceId, int]:
        """Preempted sequences and the tokens that each must recompute when it is admitted again."""
        return dict(self._preempted)

    @property
    def free_slots(self) -> tuple[int, ...]:
        """Slots of each pool group that can be taken, those of evictable prefixes among them."""
        return tuple(group.free for group in self._groups)

    def committed(self, sequence: SequenceId) -> int:
        """Tokens stored and accepted."""
        return self._find(sequence).committed

    def scheduled(self, sequence: SequenceId) -> int:
        """Tokens of the step in flight: extended, not committed yet."""
        return self._find(sequence).scheduled

    def held_slots(self, sequence: SequenceId) -> dict[int, int]:
        """Slots that a sequence holds in each pool group."""
        held = dict.fromkeys(range(len(self._groups)), 0)
        row = self._find(sequence).row
        for cycle in self.lifecycles:
            held[cycle.pool_group] += int((self._tables[cycle.id, row] >= 0).sum())
        return held

    def slot_tables(self, sequences: Iterable[SequenceId], width: int | None = None) -> np.ndarray:
        """A copy of the tables, int32 ``[lifecycles, sequences, width]``; width None is the full width."""
        rows = [self._find(sequence).row for sequence in sequences]
        return self._tables[:, rows, :width]

    def admit(self, sequence: SequenceId) -> int:
        """Start a sequence, or a preempted one again; it holds nothing yet.

        Returns the tokens that a preempted sequence has to recompute (0 for a new one). KVC502 if it is admitted
        already, KVC503 over ``max_sequences``.
        """
        if sequence in self._sequences:
            raise fail("KVC502", f"sequence {sequence!r} is admitted already")
        if not self._rows.free:
            raise self._over("max_sequences", f"sequence {sequence!r}", len(self._sequences) + 1)
        (row,) = self._rows.take(1)
        count = len(self.lifecycles)
        self._sequences[sequence] = _Sequence(sequence, row, [0] * count, [0] * count)
        return self._preempted.pop(sequence, 0)

    def reuse(self, sequence: SequenceId, tokens: TokenIds, salt: str | bytes = b"") -> Reuse:
        """Start an empty sequence with the longest prefix of ``tokens`` whose pages are held, shared and not computed.

        ``tokens``: the ids of the prompt, or of all that a preempted sequence has to compute again. Its own pages can
        be found by them from now on, by sequences of the same ``salt`` (an adapter, an image). KVC501 (unknown),
        KVC504 (no token ids) or KVC505 (the sequence has tokens already).
        """
        found = self._idle(sequence)
        if found.committed or found.chain is not None:
            message = f"sequence {sequence!r} has started already"
            raise fail("KVC505", message, help="ask for a prefix right after admit")
        chain = self._prefixes.chain(salt.encode() if isinstance(salt, str) else salt)
        chain.extend(token_ids(tokens))
        found.chain, answer = chain, self._prefixes.longest(chain)
        self._share(found, chain, answer.tokens)
        self._prefix_statistics = self._prefix_statistics.plus(chain.tokens, answer)
        return answer

    def record_tokens(self, sequence: SequenceId, tokens: TokenIds) -> None:
        """Say which tokens follow those given to `reuse`, so that their pages can be found too.

        Before the commit of the step that computes them: what is stale after it has no name otherwise. KVC501, KVC504,
        or KVC505 for a sequence whose first tokens are not known.
        """
        found = self._find(sequence)
        if found.chain is None:
            message = f"sequence {sequence!r}: its first tokens are not known"
            raise fail("KVC505", message, help="give them to reuse, right after admit")
        found.chain.extend(token_ids(tokens))

    def prefix_statistics(self) -> PrefixStatistics:
        """What `reuse` has found so far."""
        return self._prefix_statistics

    def extend(self, tokens: Mapping[SequenceId, int], rollback: Mapping[SequenceId, int] | None = None) -> None:
        """Take the pages of a step: ``tokens`` more for each sequence, all of them or none.

        ``rollback``: how many of a sequence's last tokens may not be accepted; pages that only the longest outcome lets
        go stay. Raises `OutOfPages`, KVC501 (unknown), KVC503 (over a limit), KVC504 (not a number of tokens) or KVC505
        (the sequence's last step is not committed).
        """
        rollback = rollback or {}
        for sequence, count in tokens.items():
            self._check_extend(sequence, count)
        for sequence, count in rollback.items():
            if not 0 <= count <= tokens.get(sequence, 0):
                raise fail("KVC504", f"sequence {sequence!r}: {count} tokens to roll back of {tokens.get(sequence, 0)}")
        if sum(tokens.values()) > self.limits.max_tokens:
            raise self._over("max_tokens", "the step", sum(tokens.values()))
        new = {name: self._new_pages(self._find(name), n, rollback.get(name, 0)) for name, n in tokens.items()}
        needed = self._count(new.values())
        if any(need > group.free for need, group in zip(needed, self._groups, strict=True)):
            raise self._out_of_pages(tokens, rollback, needed)
        for sequence, pages in new.items():
            self._take(self._sequences[sequence], pages, tokens[sequence])

    def commit(self, accepted: Mapping[SequenceId, int]) -> None:
        """End a step: ``accepted`` of each sequence's scheduled tokens count, the pages of the others go back.

        0 undoes the step for that sequence. Then pages that its coverage no longer reads are released. Raises KVC501 or
        KVC507 (nothing scheduled, more than scheduled, fewer than ``rollback`` allowed for).
        """
        for name, count in accepted.items():
            self._check_commit(self._find(name), count)
        for name, count in accepted.items():
            sequence = self._sequences[name]
            sequence.committed += count
            sequence.scheduled = 0
            self._offer(sequence)
            for cycle in self.lifecycles:
                self._trim(sequence, cycle)

    def preempt(self, sequence: SequenceId) -> int:
        """Free everything a sequence holds and remember its length, which is returned; `admit` brings it back.

        KVC501 for an unknown one, KVC505 while a step of it is in flight.
        """
        self._preempted[sequence] = self._drop(sequence)
        return self._preempted[sequence]

    def release(self, sequence: SequenceId) -> None:
        """Forget a sequence, preempted or not, and free everything it holds; errors as `preempt`."""
        if self._preempted.pop(sequence, None) is None:
            self._drop(sequence)

    # Checks

    def _find(self, sequence: SequenceId) -> _Sequence:
        if sequence in self._sequences:
            return self._sequences[sequence]
        if sequence in self._preempted:
            raise fail("KVC501", f"sequence {sequence!r} is preempted", help="admit it again and recompute its tokens")
        raise fail("KVC501", f"no sequence {sequence!r}", help="admit it first")

    def _idle(self, name: SequenceId) -> _Sequence:
        sequence = self._find(name)
        if sequence.scheduled:
            message = f"sequence {name!r} has {sequence.scheduled} tokens in flight"
            raise fail("KVC505", message, help="commit its step first; accepting 0 tokens undoes it")
        return sequence

    def _over(self, limit: str, what: str, value: int) -> Exception:
        return fail("KVC503", f"{what} would make {value}, over {limit} {getattr(self.limits, limit)}")

    def _check_extend(self, name: SequenceId, count: int) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise fail("KVC504", f"sequence {name!r}: tokens must be an integer of at least 1, not {count!r}")
        length = self._idle(name).committed + count
        if length > self.limits.max_seq_len:
            raise self._over("max_seq_len", f"sequence {name!r}", length)

    def _check_commit(self, sequence: _Sequence, count: int) -> None:
        if not sequence.scheduled:
            raise fail("KVC507", f"sequence {sequence.id!r} has no tokens in flight", help="extend it first")
        if not isinstance(count, int) or not 0 <= count <= sequence.scheduled:
            message = f"sequence {sequence.id!r}: {count!r} accepted tokens of {sequence.scheduled} scheduled"
            raise fail("KVC507", message)
        if count and not all(self._holds(sequence, cycle, sequence.committed + count) for cycle in self.lifecycles):
            message = f"sequence {sequence.id!r}: pages for only {count} of {sequence.scheduled} tokens were not kept"
            raise fail("KVC507", message, help="tell extend how many tokens may be rolled back")

    def _holds(self, sequence: _Sequence, cycle: Lifecycle, length: int) -> bool:
        pages = _live_pages(cycle, sequence.committed // cycle.tokens_per_page, length, length)
        return bool((self._tables[cycle.id, sequence.row, pages] >= 0).all())

    # Slots

    def _new_pages(self, sequence: _Sequence, count: int, rollback: int) -> list[list[int]]:
        """Per lifecycle, the pages that ``count`` more tokens need and the sequence has not got."""
        length = sequence.committed + count
        lowest = max(sequence.committed, length - rollback)
        found = lowest if sequence.chain is None else min(lowest, self._prefixes.last_prefix(length))
        return [
            _live_pages(cycle, sequence.ends[cycle.id], length, found if self._prefixes.is_block(cycle) else lowest)
            for cycle in self.lifecycles
        ]

    def _count(self, new: Iterable[list[list[int]]]) -> list[int]:
        """Slots of each pool group that these pages take."""
        needed = [0] * len(self._groups)
        for pages in new:
            for cycle in self.lifecycles:
                needed[cycle.pool_group] += len(pages[cycle.id])
        return needed

    def _take(self, sequence: _Sequence, pages: list[list[int]], count: int) -> None:
        sequence.scheduled = count
        for cycle in self.lifecycles:
            slots = self._groups[cycle.pool_group].take(len(pages[cycle.id]))
            self._tables[cycle.id, sequence.row, pages[cycle.id]] = slots
            sequence.ends[cycle.id] = ceil_div(sequence.committed + count, cycle.tokens_per_page)

    def _share(self, sequence: _Sequence, chain: PrefixChain, length: int) -> None:
        """Put the pages of a prefix into the tables, as if the sequence had computed it."""
        for cycle in self.lifecycles:
            pages, slots = self._prefixes.pages(cycle, chain, length)
            for slot in slots:
                self._groups[cycle.pool_group].share(slot)
            self._tables[cycle.id, sequence.row, pages] = slots
            sequence.ends[cycle.id] = length // cycle.tokens_per_page
        sequence.committed = length

    def _offer(self, sequence: _Sequence, again: bool = False) -> None:
        if sequence.chain is not None:
            self._prefixes.offer(sequence.chain, self._tables[:, sequence.row], sequence.committed, again)

    def _trim(self, sequence: _Sequence, cycle: Lifecycle) -> None:
        """Give back the pages past the committed length and those that are stale at it."""
        end = ceil_div(sequence.committed, cycle.tokens_per_page)
        stale = stale_pages(cycle.coverage, sequence.committed, cycle.tokens_per_page)
        self._give(sequence, cycle, end, sequence.ends[cycle.id])
        self._give(sequence, cycle, max(stale.start, sequence.stale[cycle.id]), stale.stop)
        sequence.ends[cycle.id] = end
        sequence.stale[cycle.id] = max(sequence.stale[cycle.id], stale.stop)

    def _give(self, sequence: _Sequence, cycle: Lifecycle, start: int, stop: int) -> None:
        if start >= stop:
            return
        entries = self._tables[cycle.id, sequence.row, start:stop]
        self._groups[cycle.pool_group].give(entries[entries >= 0][::-1].tolist())
        entries[:] = -1

    def _drop(self, name: SequenceId) -> int:
        """Remove an admitted sequence and free what it holds; returns its committed length."""
        sequence = self._idle(name)
        self._offer(sequence, again=True)
        for group, slots in self._slots_of(sequence).items():
            self._groups[group].give(slots)
        self._tables[:, sequence.row] = -1
        self._rows.give([sequence.row])
        del self._sequences[name]
        return sequence.committed

    def _slots_of(self, sequence: _Sequence) -> dict[int, list[int]]:
        """The slots held in each pool group, deepest page first; at equal depth later lifecycles first."""
        held: dict[int, list[tuple[int, int, int]]] = {group: [] for group in range(len(self._groups))}
        for cycle in self.lifecycles:
            table = self._tables[cycle.id, sequence.row]
            pages = np.flatnonzero(table >= 0)
            ends = ((pages + 1) * cycle.tokens_per_page).tolist()
            held[cycle.pool_group] += zip(ends, [cycle.id] * len(ends), table[pages].tolist(), strict=True)
        return {group: [slot for _, _, slot in sorted(pages, reverse=True)] for group, pages in held.items()}

    # The answer when slots run out

    def _out_of_pages(
        self, tokens: Mapping[SequenceId, int], rollback: Mapping[SequenceId, int], needed: list[int]
    ) -> OutOfPages:
        groups = {i: Shortage(needed[i], group.free, group.num_slots) for i, group in enumerate(self._groups)}
        own = self._count_distinct(tokens)
        holders = (Holder(name, self._count_unshared(s)) for name, s in self._sequences.items() if not s.scheduled)
        return OutOfPages(
            groups,
            self._fitting(tokens, rollback),
            tuple(holder for holder in holders if any(holder.slots.values())),
            solvable=all(short.needed + own[group] <= short.total for group, short in groups.items()),
        )

    def _count_unshared(self, sequence: _Sequence) -> dict[int, int]:
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

    def _longest(self, sequence: _Sequence, count: int, rollback: int, free: list[int]) -> tuple[int, list[int]]:
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
