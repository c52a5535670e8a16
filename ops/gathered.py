"""Which rows of a pool a gathering call reads: all of every sequence, or those that the tokens of a step select."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.nn.functional import pad

from kvc.diagnostics import fail
from kvc.encodings import PageLayout
from kvc.ops.axes import ACTIVATIONS, FLOAT32, INT32, Operand, wrong
from kvc.ops.codecs import CODECS
from kvc.ops.paging import plane_views
from kvc.ops.values import check_range

# Planes of some rows to what is gathered of them, one tensor a field.
Decode = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]

SELECTION = (
    Operand("selected", "T K", INT32, optional=True),
    Operand("sequence_ids", "T", INT32, optional=True),
    Operand("code_scale", "2", FLOAT32, optional=True),
)
SELECTION_DEFINITION = "Tensor? selected=None, Tensor? sequence_ids=None, Tensor? code_scale=None"


def page_of(
    page_table: torch.Tensor, sequences: torch.Tensor, positions: torch.Tensor, tokens_per_page: int
) -> torch.Tensor:
    """The page of every position; -1 where none is held, outside the table, and for the sequence -1.

    ``sequences`` and ``positions`` of any shapes that broadcast, any values from -1 and any at all.
    """
    fringed = pad(page_table, (0, 1, 0, 1), value=-1)  # a row for the sequence -1, a column for what lies outside
    page = (positions // tokens_per_page).clamp(-1, page_table.shape[1])
    return fringed[sequences.long(), page.long()]


@dataclass(frozen=True)
class Reads:
    """The rows ``[B, W*tokens_per_page]`` of every sequence or, where tokens select them, ``[T, K]``."""

    page_table: torch.Tensor
    lengths: torch.Tensor
    tokens_per_page: int
    selected: torch.Tensor | None = None
    sequence_ids: torch.Tensor | None = None

    @cached_property
    def positions(self) -> torch.Tensor:
        """``[1, W*tokens_per_page]`` or ``[T, K]``."""
        width = self.page_table.shape[1] * self.tokens_per_page
        return torch.arange(width, device=self.lengths.device)[None] if self.selected is None else self.selected

    @cached_property
    def sequences(self) -> torch.Tensor:
        """``[B, 1]`` or ``[T, 1]``; -1 for tokens that are padding."""
        if self.sequence_ids is None:
            return torch.arange(self.lengths.shape[0], device=self.lengths.device)[:, None]
        return self.sequence_ids[:, None].long()

    @cached_property
    def pages(self) -> torch.Tensor:
        """Page ids, -1 where no page is held."""
        return page_of(self.page_table, self.sequences, self.positions, self.tokens_per_page)

    @cached_property
    def mask(self) -> torch.Tensor:
        """Whether there is such a row: its page is held and it is below the length."""
        return (self.pages >= 0) & (self.positions < self.of_sequence(self.lengths))

    def of_sequence(self, values: torch.Tensor) -> torch.Tensor:
        """The entry of ``values`` ``[B]`` for every row's sequence, 0 for padding."""
        return pad(values, (0, 1))[self.sequences]

    def read(self, pool: torch.Tensor, layout: PageLayout, decode: Decode) -> list[torch.Tensor]:
        """What ``decode`` makes of the planes, one tensor a field: ``[*mask.shape, heads, dim]``, 0 outside the mask.

        ``decode`` sees planes ``[n, heads, (tokens_per_page,) row_bytes]`` and keeps all axes but the last.
        """
        read = self._read_pages if self.selected is None else self._read_rows
        return read(pool, layout, decode)

    def _read_pages(self, pool: torch.Tensor, layout: PageLayout, decode: Decode) -> list[torch.Tensor]:
        held, gathered = self.page_table >= 0, []
        unread = ~self.mask.view(*held.shape, self.tokens_per_page)[held]
        for value in decode(plane_views(pool.index_select(0, self.page_table[held]), layout)):
            rows = value.transpose(1, 2).masked_fill(unread[..., None, None], 0)
            out = rows.new_zeros((*held.shape, *rows.shape[1:]))
            out[held] = rows
            gathered.append(out.flatten(1, 2))
        return gathered

    def _read_rows(self, pool: torch.Tensor, layout: PageLayout, decode: Decode) -> list[torch.Tensor]:
        page, offset = self.pages[self.mask].long(), (self.positions[self.mask] % self.tokens_per_page).long()
        gathered = []
        for rows in decode([view[page, :, offset] for view in plane_views(pool, layout)]):
            out = rows.new_zeros((*self.mask.shape, *rows.shape[1:]))
            out[self.mask] = rows
            gathered.append(out)
        return gathered


def gathered_shape(page_table: torch.Tensor, selected: torch.Tensor | None, tokens_per_page: int) -> tuple[Any, ...]:
    """The first two sizes of what is gathered, which may be symbolic."""
    sequences, width = page_table.shape
    return (sequences, width * tokens_per_page) if selected is None else tuple(selected.shape)


def rounded(value: torch.Tensor, dtype: torch.dtype, code_scale: torch.Tensor | None) -> torch.Tensor:
    """An fp32 value in ``dtype``, or as e4m3 codes under ``code_scale``."""
    return value.to(dtype) if code_scale is None else CODECS["fp8"].encode(value, code_scale)[0]


def check_selection(op: str, selected: torch.Tensor | None, sequence_ids: torch.Tensor | None) -> None:
    """Raise KVC551 where one of the two is missing."""
    if (selected is None) != (sequence_ids is None):
        raise wrong(op, "sequence_ids", "goes with selected: give both or neither")


def check_result(op: str, dtype: torch.dtype, code_scale: torch.Tensor | None) -> None:
    """Raise KVC551 unless results are codes under a scale, or in an activation dtype without one."""
    if code_scale is not None and dtype != torch.uint8:
        raise wrong(op, "dtype", f"is {dtype}, expected torch.uint8: code_scale asks for codes")
    if code_scale is None and dtype == torch.uint8:
        raise wrong(op, "code_scale", "is missing: dtype asks for codes")
    if code_scale is None and dtype not in ACTIVATIONS:
        raise wrong(op, "dtype", f"is {dtype}, expected an activation dtype")


def check_sequence_ids(op: str, sequence_ids: torch.Tensor | None, sequences: int) -> None:
    """Raise KVC552 for a token of a sequence that does not exist; a selected position may have any value."""
    if sequence_ids is not None:
        check_range(op, "sequence_ids", sequence_ids, -1, sequences)


def check_copied_codes(op: str, encoding: str, argument: str, code_scale: torch.Tensor | None) -> None:
    """Raise KVC551 where codes are to be copied from a twin whose bytes are none."""
    if code_scale is not None and encoding != "fp8":
        raise wrong(op, argument, f"is {encoding}: codes are copied from a twin in fp8")


def check_one_scale(op: str, twin_scales: Sequence[torch.Tensor | None], code_scale: torch.Tensor | None) -> None:
    """Raise KVC555 where a twin's codes stand for other values than those that they are copied beside."""
    for i, scale in enumerate(twin_scales if code_scale is not None else ()):
        if scale is not None and code_scale is not None and not torch.equal(scale, code_scale):
            problem = f"is {scale.tolist()}, code_scale {code_scale.tolist()}: codes are copied under one scale"
            raise fail("KVC555", f"kvc::{op}: twin_scales[{i}] {problem}", help="give the twin's scale as code_scale")
