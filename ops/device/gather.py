"""Read and decode rows of a history, of its twin, or of both in one launch: what every op that gathers rows runs.

The grid is flat: programs of field 0, then those of field 1. A program makes a tile of rows of one head: of one
sequence, or of the positions that one token selects. Rows of the twin are loaded only where a tile has some.
"""

# mypy: ignore-errors
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl

from kvc.encodings import Field
from kvc.ops.codecs.fp8 import triton as fp8
from kvc.ops.device.numbers import rounded
from kvc.ops.device.paging import page_of
from kvc.ops.device.retained import is_retained
from kvc.ops.device.rows import check_aligned, field_places, load_field, row_offset

TILE = 4096  # elements of a program's tile
FIELDS = 2  # of a launch
NOTHING = ("", 0, 1, 0, 0, 0, 0)  # constants of a field that is not there


@dataclass(frozen=True)
class Source:
    """A pool with its page table i32 [B, W], its encoding and a scale operand or None a field."""

    pool: torch.Tensor
    table: torch.Tensor
    encoding: str
    scales: Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class Selection:
    """Positions i32 [T, K] that tokens select in their sequences i32 [T]."""

    positions: torch.Tensor
    sequences: torch.Tensor


@dataclass(frozen=True)
class Kept:
    """Which rows are read from the twin; committed i32 [B]."""

    committed: torch.Tensor
    first: int
    last: int
    unit: str


@triton.jit
def _field(
    unit,
    pool,
    table,
    scale,
    twin,
    twin_table,
    twin_scale,
    given,
    out,
    lengths,
    committed,
    selected,
    sequences,
    code_scale,
    pool_stride,
    twin_stride,
    table_stride,
    table_step,
    twin_table_stride,
    twin_table_step,
    selected_stride,
    given_stride,
    given_row,
    given_head,
    out_stride,
    out_row,
    out_head,
    out_step,
    batch,
    count,
    width,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    HEADS: tl.constexpr,
    FROM_POOL: tl.constexpr,
    SELECTED: tl.constexpr,
    CODES: tl.constexpr,
    BELOW: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    PAGES: tl.constexpr,
    S: tl.constexpr,
    ROWS: tl.constexpr,
):
    blocks = tl.cdiv(count, ROWS)
    head = unit % HEADS
    outer = (unit // HEADS // blocks).to(tl.int64)
    inner = unit // HEADS % blocks * ROWS + tl.arange(0, ROWS)
    here = inner < count
    sequence, position = outer, inner
    if SELECTED:
        sequence = tl.load(sequences + outer).to(tl.int64)
        position = tl.load(selected + outer * selected_stride + inner, mask=here, other=-1)
    known = (sequence >= 0) & (sequence < batch)
    length = tl.load(lengths + sequence, mask=known, other=0)
    below = here & (position >= 0) & (position < length)
    taken = tl.zeros([ROWS], tl.int1)
    high_page = tl.zeros([ROWS], tl.int32)
    if HIGH[1] > 0:
        high_page = page_of(twin_table + sequence * twin_table_stride, position, twin_table_step, width, below, S)
        start = tl.load(committed + sequence, mask=known, other=0)
        taken = below & (high_page >= 0) & is_retained(position, start, FIRST, LAST, PAGES, S)
    DIM: tl.constexpr = LOW[1] if LOW[1] > 0 else HIGH[1]
    PADDED: tl.constexpr = LOW[2] if LOW[1] > 0 else HIGH[2]
    column = tl.arange(0, PADDED)
    inside = (column < DIM)[None, :]
    if FROM_POOL:
        page = page_of(table + sequence * table_stride, position, table_step, width, below & ~taken, S)
        data = row_offset(page, position % S, head, pool_stride, LOW[3], LOW[4], S)
        scales = row_offset(page, position % S, head, pool_stride, LOW[5], LOW[6], S)
        CODEC: tl.constexpr = LOW[0]
        value = load_field(pool, data, pool, scales, page >= 0, scale, CODEC, DIM, PADDED)
        if CODES:
            result = fp8.encode(value, tl.load(code_scale + 1))
        else:
            result = rounded(value, out.dtype.element_ty)
    else:
        place = outer * given_stride + inner.to(tl.int64) * given_row + head * given_head
        result = tl.load(given + place[:, None] + column[None, :], mask=(here & ~taken)[:, None] & inside, other=0)
    if HIGH[1] > 0 and tl.sum(taken.to(tl.int32)) > 0:
        data = row_offset(high_page, position % S, head, twin_stride, HIGH[3], HIGH[4], S)
        scales = row_offset(high_page, position % S, head, twin_stride, HIGH[5], HIGH[6], S)
        if CODES:  # of the twin, under the same scale: its bytes are the codes
            over = tl.load(twin + data[:, None] + column[None, :], mask=taken[:, None] & inside, other=0)
        else:
            TWIN_CODEC: tl.constexpr = HIGH[0]
            high = load_field(twin, data, twin, scales, taken, twin_scale, TWIN_CODEC, DIM, PADDED)
            over = rounded(high, out.dtype.element_ty)
        result = tl.where(taken[:, None], over, result)
    into = outer * out_stride + inner.to(tl.int64) * out_row + head * out_head
    written = below if BELOW else here
    tl.store(out + into[:, None] + column[None, :] * out_step, result, mask=written[:, None] & inside)


@triton.jit
def _gather(
    pool,
    table,
    scale0,
    scale1,
    twin,
    twin_table,
    twin_scale0,
    twin_scale1,
    given0,
    given1,
    out0,
    out1,
    lengths,
    committed,
    selected,
    sequences,
    code_scale,
    pool_stride,
    twin_stride,
    table_stride,
    table_step,
    twin_table_stride,
    twin_table_step,
    selected_stride,
    given_stride0,
    given_row0,
    given_head0,
    given_stride1,
    given_row1,
    given_head1,
    out_stride0,
    out_row0,
    out_head0,
    out_step0,
    out_stride1,
    out_row1,
    out_head1,
    out_step1,
    batch,
    count,
    width,
    units0,
    LOW0: tl.constexpr,
    LOW1: tl.constexpr,
    HIGH0: tl.constexpr,
    HIGH1: tl.constexpr,
    HEADS0: tl.constexpr,
    HEADS1: tl.constexpr,
    FROM_POOL: tl.constexpr,
    SELECTED: tl.constexpr,
    CODES: tl.constexpr,
    BELOW: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    PAGES: tl.constexpr,
    S: tl.constexpr,
    ROWS0: tl.constexpr,
    ROWS1: tl.constexpr,
):
    unit = tl.program_id(0)
    if unit < units0:
        _field(
            unit, pool, table, scale0, twin, twin_table, twin_scale0, given0, out0, lengths, committed, selected,
            sequences, code_scale, pool_stride, twin_stride, table_stride, table_step, twin_table_stride,
            twin_table_step, selected_stride, given_stride0, given_row0, given_head0, out_stride0, out_row0, out_head0,
            out_step0, batch, count, width, LOW0, HIGH0, HEADS0, FROM_POOL, SELECTED, CODES, BELOW, FIRST, LAST,
            PAGES, S, ROWS0,
        )  # fmt: skip
    elif HEADS1 > 0:
        _field(
            unit - units0, pool, table, scale1, twin, twin_table, twin_scale1, given1, out1, lengths, committed,
            selected, sequences, code_scale, pool_stride, twin_stride, table_stride, table_step, twin_table_stride,
            twin_table_step, selected_stride, given_stride1, given_row1, given_head1, out_stride1, out_row1, out_head1,
            out_step1, batch, count, width, LOW1, HIGH1, HEADS1, FROM_POOL, SELECTED, CODES, BELOW, FIRST, LAST,
            PAGES, S, ROWS1,
        )  # fmt: skip


def gather(
    op: str,
    fields: tuple[Field, ...],
    outs: Sequence[torch.Tensor],
    history: Source | None,
    twin: Source | None,
    lengths: torch.Tensor,
    tokens_per_page: int,
    kept: Kept | None = None,
    selection: Selection | None = None,
    given: Sequence[torch.Tensor] | None = None,
    code_scale: torch.Tensor | None = None,
    below_only: bool = False,
) -> None:
    """Fill ``outs``, one tensor [outer, rows, heads, dim] a field, from the history, or over the rows ``given``.

    ``below_only``: rows at and past the length keep what they hold.
    """
    for first in range(0, len(fields), FIELDS):
        some = slice(first, first + FIELDS)
        part = [None if x is None else x[some] for x in (fields, outs, given)]
        sources = [source and replace(source, scales=source.scales[some]) for source in (history, twin)]
        _launch(op, *part, *sources, lengths, tokens_per_page, kept, selection, code_scale, below_only)


def _launch(op, fields, outs, given, history, twin, lengths, tokens_per_page, kept, selection, code_scale, below_only):
    check_aligned(op, pool=history and history.pool, twin=twin and twin.pool)
    low = field_places(op, history.encoding, fields, tokens_per_page) if history else ()
    high = field_places(op, twin.encoding, fields, tokens_per_page) if twin else ()
    places = low or high
    given = [_in_line(x) for x in given or ()]
    tables = [source.table if source else None for source in (history, twin)]
    (sequences, width), (outer, count) = (history or twin).table.shape, outs[0].shape[:2]
    outer = min(outer, sequences) if below_only else outer
    rows = [max(1, TILE // place.padded) for place in places]
    units = [outer * triton.cdiv(count, size) * place.heads for size, place in zip(rows, places, strict=True)]
    if not sum(units):
        return
    _gather[(sum(units),)](
        history.pool if history else None,
        tables[0],
        *_two(history.scales if history else (), None),
        twin.pool if twin else None,
        tables[1],
        *_two(twin.scales if twin else (), None),
        *_two(given, None),
        *_two(outs, None),
        lengths.contiguous(),
        kept.committed.contiguous() if kept else None,
        selection.positions if selection else None,
        selection.sequences if selection else None,
        code_scale,
        history.pool.stride(0) if history else 0,
        twin.pool.stride(0) if twin else 0,
        *(stride for table in tables for stride in ((0, 0) if table is None else table.stride())),
        selection.positions.stride(0) if selection else 0,
        *(stride for strides in _two([x.stride()[:3] for x in given], (0, 0, 0)) for stride in strides),
        *(stride for strides in _two([x.stride() for x in outs], (0, 0, 0, 0)) for stride in strides),
        sequences,
        count,
        width,
        units[0],
        *_two([place.constants for place in low], NOTHING),
        *_two([place.constants for place in high], NOTHING),
        *_two([place.heads for place in places], 0),
        history is not None,
        selection is not None,
        code_scale is not None,
        below_only,
        kept.first if kept else 0,
        kept.last if kept else 0,
        kept is not None and kept.unit == "page",
        tokens_per_page,
        *_two(rows, 1),
        num_warps=4,
        enable_fp_fusion=False,
    )


def _two(values: Sequence[Any], nothing: Any) -> tuple[Any, Any]:
    """Something for each of the kernel's two fields."""
    return tuple([*values, nothing, nothing][:FIELDS])


def _in_line(x: torch.Tensor) -> torch.Tensor:
    """The tensor with its features side by side."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
