"""Which sequence holds which slots: host only, numpy only, the same for every device.

A **slot** of a pool group holds one page of each buffer of a lifecycle; a sequence has one int32 slot table a lifecycle
whose entry `p` is the slot of tokens `[p*S, (p+1)*S)`, -1 where none is held. Every call either does all that it was
asked or raises and changes nothing.
"""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from kvc.diagnostics import fail
from kvc.runtime.out_of_pages import SequenceId
from kvc.runtime.prefix_chain import TokenIds, token_ids
from kvc.runtime.prefix_index import PrefixStatistics, Reuse
from kvc.runtime.sequence_state import SequenceState
from kvc.runtime.slot_tables import Limits, SlotTables
from kvc.specs.resolved import Domain

__all__ = ["CacheManager", "Limits"]


class CacheManager(SlotTables):
    """Slot tables of all admitted sequences.

    One step is `extend` (pages for this step's tokens) and `commit` (how many of them were accepted; where only the
    device knows, `settle` says it later). ``num_slots`` has one entry a pool group. Slots are given lowest first, so
    equal schedules give equal tables.
    """

    @property
    def sequences(self) -> tuple[SequenceId, ...]:
        """Admitted sequences, oldest first."""
        return tuple(self._sequences)

    @property
    def preempted(self) -> dict[SequenceId, int]:
        """Preempted sequences and the tokens that each must recompute when it is admitted again."""
        return dict(self._preempted)

    def committed(self, sequence: SequenceId) -> int:
        """Tokens stored and accepted; as if all were, while a step that `commit` left unsettled is in flight."""
        return self._find(sequence).committed

    def scheduled(self, sequence: SequenceId) -> int:
        """Tokens of the open step: extended, not committed yet."""
        return self._find(sequence).scheduled

    def unsettled(self, sequence: SequenceId) -> int:
        """The last of its committed tokens, which `settle` may still take back."""
        return self._find(sequence).unsettled

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

    def table(self, sequence: SequenceId) -> np.ndarray:
        """The tables of a sequence as they are now, int32 ``[lifecycles, table_width]``: a view to read."""
        return self._tables[:, self._find(sequence).row]

    def table_versions(self, sequences: Iterable[SequenceId]) -> list[int]:
        """A number for each sequence's tables: where it is the same, so are they; see also `changes`."""
        return [self._versions[self._find(sequence).row] for sequence in sequences]

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
        self._sequences[sequence] = SequenceState(sequence, row, [0] * count, [0] * count)
        return self._preempted.pop(sequence, 0)

    def reuse(self, sequence: SequenceId, tokens: TokenIds, salt: str | bytes = b"") -> Reuse:
        """Start an empty sequence with the longest prefix of ``tokens`` whose pages are held, shared and not computed.

        ``tokens``: the ids of the prompt, or of all that a preempted sequence has to compute again. Its own pages can
        be found by them from now on, by sequences of the same ``salt`` (an adapter, an image). KVC501 (unknown),
        KVC504 (no token ids) or KVC505 (the sequence has tokens already).
        """
        found = self._settled(sequence)
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

    def extend(
        self,
        tokens: Mapping[SequenceId, int],
        rollback: Mapping[SequenceId, int] | None = None,
        domains: Collection[Domain] | None = None,
    ) -> None:
        """Take the pages of a step: ``tokens`` more for each sequence, all of them or none.

        ``rollback``: how many of a sequence's last tokens may not be accepted; pages that only the longest outcome lets
        go stay, and so do those that the lowest outcome of an unsettled step reads. ``domains``: whose layers will see
        the tokens, None: all; one that has missed tokens of a sequence keeps no page of it from then on. Raises
        `OutOfPages`, KVC501 (unknown), KVC503 (over a limit), KVC504 (not a number of tokens), KVC505 (the sequence's
        last step is not committed) or KVC527 (a domain that has missed tokens).
        """
        rollback, running = rollback or {}, self.domains if domains is None else frozenset(domains)
        busy = [name for name, count in tokens.items() if not self._extends_quietly(name, count, running)]
        for sequence in busy:
            self._check_extend(sequence, tokens[sequence], running)
        for sequence, count in rollback.items():
            if not 0 <= count <= tokens.get(sequence, 0):
                raise fail("KVC504", f"sequence {sequence!r}: {count} tokens to roll back of {tokens.get(sequence, 0)}")
        if sum(tokens.values()) > self.limits.max_tokens:
            raise self._over("max_tokens", "the step", sum(tokens.values()))
        new = {name: self._new_pages(self._find(name), tokens[name], rollback.get(name, 0)) for name in busy}
        needed = self._count(new.values())
        if new and any(need > group.free for need, group in zip(needed, self._groups, strict=True)):
            raise self._out_of_pages(tokens, rollback, needed)
        for sequence, count in tokens.items():
            found = self._sequences[sequence]
            found.running, found.scheduled = running, count
            if sequence in new:
                self._take(found, new[sequence], count)

    def commit(self, accepted: Mapping[SequenceId, int], unsettled: Mapping[SequenceId, int] | None = None) -> None:
        """End a step: ``accepted`` of each sequence's scheduled tokens count, the pages of the others go back.

        0 undoes the step for that sequence. Then pages that its coverage no longer reads are released. ``unsettled``:
        how many of the accepted ones `settle` may still take back; nothing that any outcome reads is released. Raises
        KVC501, KVC505 (an earlier step is unsettled) or KVC507 (nothing scheduled, more than scheduled, fewer than
        ``rollback`` allowed for).
        """
        unsettled = unsettled or {}
        busy = {name for name, count in accepted.items() if name in unsettled or not self._ends_quietly(name, count)}
        for name, count in accepted.items():
            if name in busy:
                self._check_commit(self._find(name), count, unsettled.get(name, 0))
        for name, count in accepted.items():
            sequence = self._sequences[name]
            sequence.committed += count
            sequence.scheduled = 0
            if name not in busy:
                continue
            if count:
                sequence.unsettled = unsettled.get(name, 0)
                sequence.missed |= self.domains - sequence.running
            self._close(sequence)

    def settle(self, accepted: Mapping[SequenceId, int]) -> None:
        """Say how many of the tokens that `commit` left unsettled were accepted; the others are taken back.

        Pages go as after a `commit`, at once or, where a later step of the sequence is open, when that ends. KVC501, or
        KVC507 (nothing unsettled, more than there were).
        """
        for name, count in accepted.items():
            _check_count(self._find(name), count, self._find(name).unsettled)
        for name, count in accepted.items():
            sequence = self._sequences[name]
            sequence.committed = sequence.lowest + count
            sequence.unsettled = 0
            if not sequence.scheduled:
                self._close(sequence)

    def rewind(self, sequence: SequenceId, length: int) -> None:
        """Take back all but a sequence's first ``length`` tokens: what a draft model ran ahead on a cache of its own.

        KVC501, KVC505 (a step of it is in flight, or others may share its pages, since its tokens are known) or KVC507
        (longer than it is, or pages that would be read again were released).
        """
        found = self._settled(sequence)
        if found.chain is not None:
            raise fail("KVC505", f"sequence {sequence!r} may share its pages", help="rewind one that never asked reuse")
        _check_count(found, length, found.committed)
        if not all(self._holds(found, cycle, 0, length, length) for cycle in self.lifecycles):
            raise fail("KVC507", f"sequence {sequence!r}: pages that are read after {length} tokens were released")
        found.committed = length
        self._close(found)

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

    # Steps within the pages that a sequence holds: nothing to check, to take or to give back

    def _extends_quietly(self, name: SequenceId, count: int, running: Collection[Domain]) -> bool:
        """Whether `extend` has nothing to do for a sequence but to note the tokens."""
        found = self._sequences.get(name)
        if found is None or found.scheduled or type(count) is not int:
            return False
        return 0 < count <= found.quiet - found.committed and running == self.domains

    def _ends_quietly(self, name: SequenceId, count: int) -> bool:
        """Whether `commit` has nothing to do for a sequence but to count the tokens."""
        found = self._sequences.get(name)
        if found is None or not found.scheduled or type(count) is not int:
            return False
        if not 0 <= count <= found.scheduled <= found.quiet - found.committed:
            return False
        return found.chain is None or not self._prefixes.has_new(found.chain, found.committed + count)

    # Checks

    def _idle(self, name: SequenceId) -> SequenceState:
        sequence = self._find(name)
        if sequence.scheduled:
            message = f"sequence {name!r} has {sequence.scheduled} tokens in flight"
            raise fail("KVC505", message, help="commit its step first; accepting 0 tokens undoes it")
        return sequence

    def _settled(self, name: SequenceId) -> SequenceState:
        sequence = self._idle(name)
        if sequence.unsettled:
            message = f"sequence {name!r} has {sequence.unsettled} tokens that may not be accepted"
            raise fail("KVC505", message, help="settle its step first")
        return sequence

    def _over(self, limit: str, what: str, value: int) -> Exception:
        return fail("KVC503", f"{what} would make {value}, over {limit} {getattr(self.limits, limit)}")

    def _check_extend(self, name: SequenceId, count: int, running: Collection[Domain]) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise fail("KVC504", f"sequence {name!r}: tokens must be an integer of at least 1, not {count!r}")
        length = self._idle(name).committed + count
        if length > self.limits.max_seq_len:
            raise self._over("max_seq_len", f"sequence {name!r}", length)
        for domain in self._find(name).missed.intersection(running):
            message = f"sequence {name!r}: the {domain} layers have not seen all of its {length - count} tokens"
            raise fail(
                "KVC527", message, help="leave them out of its steps, or preempt it and compute its tokens again"
            )

    def _check_commit(self, sequence: SequenceState, count: int, unsettled: int) -> None:
        if not sequence.scheduled:
            raise fail("KVC507", f"sequence {sequence.id!r} has no tokens in flight", help="extend it first")
        _check_count(sequence, count, sequence.scheduled)
        _check_count(sequence, unsettled, count)
        if count:
            self._settled_before(sequence)
        start, length = sequence.committed, sequence.committed + count
        held = (self._holds(sequence, cycle, start, length, length - unsettled) for cycle in self.lifecycles)
        if count and not all(held):
            message = f"sequence {sequence.id!r}: pages for only {count} of {sequence.scheduled} tokens were not kept"
            raise fail("KVC507", message, help="tell extend how many tokens may be rolled back")

    @staticmethod
    def _settled_before(sequence: SequenceState) -> None:
        if sequence.unsettled:
            message = f"sequence {sequence.id!r}: the step before has {sequence.unsettled} tokens that are not settled"
            raise fail("KVC505", message, help="settle that step first, or accept 0 tokens of this one")

    def _drop(self, name: SequenceId) -> int:
        """Remove an admitted sequence and free what it holds; returns its committed length."""
        sequence = self._settled(name)
        self._offer(sequence, again=True)
        for group, slots in self._slots_of(sequence).items():
            self._groups[group].give(slots)
        self._tables[:, sequence.row] = -1
        self._changed(sequence.row)
        self._rows.give([sequence.row])
        del self._sequences[name]
        return sequence.committed


def _check_count(sequence: SequenceState, count: int, most: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= most:
        raise fail("KVC507", f"sequence {sequence.id!r}: {count!r} accepted tokens of {most} scheduled")
