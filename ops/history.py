"""The cached rows that attention reads, sequence by sequence: of pages, of pages and a twin, or gathered before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch

from kvc.ops.codecs import RowFormat, row_format
from kvc.ops.paging import read_pages
from kvc.ops.retained import Retained

HeldRows = tuple[list[torch.Tensor], Callable[[int], int]]


class Rows(Protocol):
    """Cached rows of a batch."""

    def read(self, sequence: int, start: int, stop: int) -> HeldRows:
        """Held rows in ``[start, stop)``, f32 [heads, L, dim] a field, and how many of them lie below a position.

        ``start`` is a multiple of the page.
        """


@dataclass(frozen=True)
class HeldPages:
    """Which rows of a sequence its page table holds."""

    page_table: torch.Tensor
    tokens_per_page: int

    def pages(self, sequence: int, start: int, stop: int) -> list[int]:
        """Entries of the pages of ``[start, stop)``."""
        first = start // self.tokens_per_page
        return self.page_table[sequence, first : -(-stop // self.tokens_per_page)].tolist()  # type: ignore[no-any-return]

    def starts(self, pages: list[int], start: int, stop: int) -> list[int]:
        """For each page the number of held rows before it, and that of all."""
        first = start // self.tokens_per_page
        return list(accumulate((self._rows(page, first + i, stop) for i, page in enumerate(pages)), initial=0))

    def _rows(self, page: int, index: int, stop: int) -> int:
        return min(self.tokens_per_page, stop - index * self.tokens_per_page) if page >= 0 else 0

    def positions(self, sequence: int, start: int, stop: int) -> torch.Tensor:
        """Held positions in ``[start, stop)``, ascending."""
        pages = self.page_table[sequence, : -(-stop // self.tokens_per_page)]
        held = (pages >= 0).repeat_interleave(self.tokens_per_page)[:stop]
        held[:start] = False
        return held.nonzero()[:, 0]

    def below(self, start: int, starts: list[int]) -> Callable[[int], int]:
        """How many held rows lie below a position."""

        def held_below(position: int) -> int:
            page, offset = divmod(max(0, position - start), self.tokens_per_page)
            if page >= len(starts) - 1:
                return starts[-1]
            return min(starts[page] + offset, starts[page + 1])

        return held_below


@dataclass(frozen=True)
class History:
    """The paged rows of a batch: what is needed to read a sequence's rows in fp32."""

    pool: torch.Tensor
    page_table: torch.Tensor
    format: RowFormat
    scales: tuple[torch.Tensor | None, ...]
    tokens_per_page: int

    @property
    def held(self) -> HeldPages:
        """Which rows there are."""
        return HeldPages(self.page_table, self.tokens_per_page)

    def read(self, sequence: int, start: int, stop: int) -> HeldRows:
        """As `Rows.read`. Other bytes of the pages are dropped before anything is multiplied: they can be anything."""
        pages = self.held.pages(sequence, start, stop)
        starts = self.held.starts(pages, start, stop)
        present = torch.tensor([page for page in pages if page >= 0], dtype=torch.int32, device=self.pool.device)
        planes = read_pages(self.pool, present, self.format.layout(self.tokens_per_page))
        values = [x.flatten(1, 2)[:, : starts[-1]] for x in self.format.decode(planes, self.scales)]
        return values, self.held.below(start, starts)


@dataclass(frozen=True)
class MixedHistory:
    """A history and its twin: rows that are retained and held there come from the twin."""

    low: History
    twin: History
    retained: Retained
    committed: torch.Tensor

    def read(self, sequence: int, start: int, stop: int) -> HeldRows:
        """As `Rows.read`: the rows are those that the history holds, whatever the twin does."""
        values, held_below = self.low.read(sequence, start, stop)
        high, _ = self.twin.read(sequence, start, stop)
        positions = self.low.held.positions(sequence, start, stop)
        kept = self.twin.held.positions(sequence, start, stop)
        taken = self.retained.mask(self.committed[sequence : sequence + 1], stop)[0][kept] & torch.isin(kept, positions)
        places = torch.searchsorted(positions, kept[taken])
        return [x.index_copy(1, places, y[:, taken]) for x, y in zip(values, high, strict=True)], held_below


def with_twin(
    history: History,
    twin: torch.Tensor | None,
    twin_table: torch.Tensor | None,
    committed: torch.Tensor | None,
    scales: tuple[torch.Tensor | None, ...],
    encoding: str | None,
    retained: Retained,
) -> Rows:
    """The history alone, or with the twin where there is one."""
    if twin is None or twin_table is None or committed is None or encoding is None:
        return history
    format = row_format("attention", encoding, history.format.fields)
    return MixedHistory(
        history, History(twin, twin_table, format, scales, history.tokens_per_page), retained, committed
    )


@dataclass(frozen=True)
class GatheredRows:
    """Rows that were gathered before: one tensor a field, [B, L, heads, dim]."""

    rows: Sequence[torch.Tensor]
    page_table: torch.Tensor
    tokens_per_page: int

    def read(self, sequence: int, start: int, stop: int) -> HeldRows:
        """As `Rows.read`: the rows that count are those whose page is held."""
        held = HeldPages(self.page_table, self.tokens_per_page)
        starts = held.starts(held.pages(sequence, start, stop), start, stop)
        positions = held.positions(sequence, start, stop)
        values = [x[sequence, positions].transpose(0, 1).float() for x in self.rows]
        return values, held.below(start, starts)
