"""The host data of a step in one int32 buffer: where each section lies, and what fills it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kvc.diagnostics import fail
from kvc.graphs.program import PHASES, Phase, Section
from kvc.plan.stale import ceil_div
from kvc.runtime.batch import Part, Step, next_bucket
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.out_of_pages import SequenceId

SECTION_ALIGNMENT = 4  # int32 elements: sections start on 16 bytes


@dataclass(frozen=True)
class Placed:
    """A section of a packed step: int32 elements ``[offset, offset + prod(shape))`` of the buffer."""

    phase: Phase
    name: str
    offset: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """First element after the section."""
        return self.offset + prod(self.shape)


class StepPacker:
    """Lays out and fills the step buffer by the program's section table (``sections`` of each phase).

    Generation sections come first: their offsets depend on the bucket alone, so a captured graph finds them where they
    were, whatever context runs beside it.
    """

    def __init__(self, sections: Mapping[Phase, Sequence[Section]], manager: CacheManager) -> None:
        for section in {section.name for part in sections.values() for section in part} - _FILL.keys():
            raise fail("KVC511", f"the program's step has a section {section!r} that this runtime cannot fill")
        self._sections, self._manager = sections, manager

    def capacity(self, limits: Limits, buckets: Sequence[int]) -> int:
        """Elements that hold any step within the limits."""
        width, total = self._manager.table_width, limits.max_tokens
        context = Part("context", (), slice(0, 0), limits.max_sequences, total, width)
        counts = range(1, limits.max_sequences + 1)
        tokens = max(next_bucket(count, buckets) * (total // count) for count in counts if count <= total)
        sequences = next_bucket(limits.max_sequences, buckets)
        generation = Part("generation", (), slice(0, 0), sequences, tokens, width)
        return self._end(self.place(Step((context, generation))))

    def place(self, step: Step) -> tuple[Placed, ...]:
        """Where each section of the step's parts lies."""
        placed: list[Placed] = []
        for part in sorted(step.parts, key=lambda part: -PHASES.index(part.phase)):
            dims = {"G": len(self._manager.lifecycles), **part.dims}
            for section in self._sections.get(part.phase, ()):
                shape = tuple(_size(dim, dims) for dim in section.dims)
                placed.append(Placed(part.phase, section.name, _aligned(self._end(placed)), shape))
        return tuple(placed)

    def pack(self, step: Step, placed: Sequence[Placed], buffer: np.ndarray) -> int:
        """Fill int32 ``buffer`` (the gaps too, with 0); returns the elements that the step takes.

        Lengths and tables are the manager's: committed tokens as before the step, tables with the step's pages. KVC503
        for a step that does not fit.
        """
        end = self._end(placed)
        if end > len(buffer):
            raise fail("KVC503", f"a step of {step.padded_tokens} padded tokens is over the limits of the program")
        buffer[:end] = 0
        parts = {part.phase: part for part in step.parts}
        for section in placed:
            view = buffer[section.offset : section.stop].reshape(section.shape)
            _FILL[section.name](view, parts[section.phase], self._manager)
        return end

    def refills(self, step: Step, placed: Sequence[Placed], buffer: np.ndarray) -> "tuple[Refill, ...]":
        """What brings a packed ``buffer`` up to date for a later step of the same parts: the same bytes as `pack`."""
        parts = {part.phase: part for part in step.parts}
        changing = [section for section in placed if section.name in _REFILL]
        return tuple(
            _REFILL[section.name](
                buffer[section.offset : section.stop].reshape(section.shape), parts[section.phase], self._manager
            )
            for section in changing
        )

    @staticmethod
    def _end(placed: Sequence[Placed]) -> int:
        return placed[-1].stop if placed else 0


def _aligned(offset: int) -> int:
    return ceil_div(offset, SECTION_ALIGNMENT) * SECTION_ALIGNMENT


def _size(dim: int | str, dims: Mapping[str, int]) -> int:
    """`B + 1` -> the size: a number, a name, or a sum of them."""
    if isinstance(dim, int):
        return dim
    return sum(int(term) if term.isdigit() else dims[term] for term in dim.replace(" ", "").split("+"))


def _fill_slot_tables(view: np.ndarray, part: Part, manager: CacheManager) -> None:
    view[:, part.sequences :] = -1
    view[:, : part.sequences] = manager.slot_tables([request.id for request in part.requests], part.width)


def _fill_committed(view: np.ndarray, part: Part, manager: CacheManager) -> None:
    view[: part.sequences] = [manager.committed(request.id) for request in part.requests]


def _fill_query_starts(view: np.ndarray, part: Part, manager: CacheManager) -> None:
    view[1:] = part.tokens
    view[1 : part.sequences + 1] = np.cumsum([request.tokens for request in part.requests])


def _fill_sequence_ids(view: np.ndarray, part: Part, manager: CacheManager) -> None:
    view[part.tokens :] = -1
    view[: part.tokens] = np.repeat(np.arange(part.sequences), [request.tokens for request in part.requests])


def _fill_scheduled(view: np.ndarray, part: Part, manager: CacheManager) -> None:
    view[: part.sequences] = [manager.unsettled(request.id) for request in part.requests]


def _fill_accepted_rows(view: np.ndarray, part: Part, manager: CacheManager) -> None:
    view[part.sequences :] = -1
    view[: part.sequences] = part.accepted_rows


# Section name -> what fills it; a program whose table names another one needs a newer runtime.
_FILL = {
    "slot_tables": _fill_slot_tables,
    "committed": _fill_committed,
    "query_starts": _fill_query_starts,
    "sequence_ids": _fill_sequence_ids,
    "scheduled": _fill_scheduled,
    "accepted_rows": _fill_accepted_rows,
}


Refill = Callable[[], None]


class _RefilledTables:
    """Copies the slot tables of the sequences whose tables have changed since it last did."""

    def __init__(self, view: np.ndarray, part: Part, manager: CacheManager) -> None:
        self._view, self._part, self._manager = view, part, manager
        self._names = [request.id for request in part.requests]
        self._changes, self._versions = manager.changes, manager.table_versions(self._names)

    def __call__(self) -> None:
        manager = self._manager
        if manager.changes == self._changes:
            return
        before, self._versions = self._versions, manager.table_versions(self._names)
        for index, (old, new) in enumerate(zip(before, self._versions, strict=True)):
            if old != new:
                self._view[:, index] = manager.table(self._names[index])[:, : self._part.width]
        self._changes = manager.changes


class _RefilledNumbers:
    """Writes a number of each sequence: few, so they are written whether they have changed or not."""

    def __init__(self, view: np.ndarray, part: Part, number: Callable[[SequenceId], int]) -> None:
        self._view, self._number = view, number
        self._names = [request.id for request in part.requests]

    def __call__(self) -> None:
        for index, name in enumerate(self._names):
            self._view[index] = self._number(name)


# Sections that change while a step's parts stay the same; the others follow from the parts.
_REFILL: dict[str, Callable[[np.ndarray, Part, CacheManager], Refill]] = {
    "slot_tables": _RefilledTables,
    "committed": lambda view, part, manager: _RefilledNumbers(view, part, manager.committed),
    "scheduled": lambda view, part, manager: _RefilledNumbers(view, part, manager.unsettled),
}
