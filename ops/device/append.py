"""Rotate, encode and store the fields of rows in one launch: what every op that writes encoded rows to pages runs.

The grid is flat: programs of field 0 come first, then those of field 1, then those that rotate queries. A program takes
a tile of tokens of one head, encodes it once for the history and once for the twin, and writes both.
"""

# mypy: ignore-errors
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kvc.ops.codecs import row_fields
from kvc.ops.device.rotation import rotated_rows
from kvc.ops.device.rows import check_aligned, field_places, row_offset, store_field

TILE = 4096  # elements of a program's tile where there are many tokens
SMALL_TILE = 1024
MANY_TOKENS = 2048
NOTHING = ("", 0, 1, 0, 0, 0, 0)  # constants of a field that is not there


@dataclass(frozen=True)
class Store:
    """Where rows go: a pool, its write rows i32 [T], its encoding and a scale operand or None a field."""

    pool: torch.Tensor
    rows: torch.Tensor
    encoding: str
    scales: Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class Rotation:
    """``field``: index of the field that is rotated."""

    table: torch.Tensor
    positions: torch.Tensor
    layout: str
    field: int


@triton.jit
def _store_rows(
    pool,
    rows,
    token,
    mask,
    head,
    x,
    scale,
    stride,
    FIELD: tl.constexpr,
    S: tl.constexpr,
):
    row = tl.load(rows + token, mask=mask, other=-1)
    written = row >= 0
    page, place = row // S, row % S
    data = row_offset(page, place, head, stride, FIELD[3], FIELD[4], S)
    scales = row_offset(page, place, head, stride, FIELD[5], FIELD[6], S)
    CODEC: tl.constexpr = FIELD[0]  # a text in a tuple is no constant by itself
    store_field(pool, data, pool, scales, x, written, scale, CODEC, FIELD[1])


@triton.jit
def _append_field(
    unit,
    x,
    token_stride,
    head_stride,
    kept,
    scale,
    twin_scale,
    pool,
    rows,
    twin,
    twin_rows,
    table,
    positions,
    places,
    pool_stride,
    twin_stride,
    table_stride,
    place_stride,
    tokens,
    FIELD: tl.constexpr,
    TWIN: tl.constexpr,
    HEADS: tl.constexpr,
    R: tl.constexpr,
    LAYOUT: tl.constexpr,
    KEEP: tl.constexpr,
    PLACED: tl.constexpr,
    S: tl.constexpr,
    ROWS: tl.constexpr,
):
    head = unit % HEADS
    token = unit // HEADS * ROWS + tl.arange(0, ROWS)
    mask = token < tokens
    position = tl.zeros([ROWS], tl.int32)
    if R > 0 or PLACED:
        position = tl.load(positions + token, mask=mask, other=0)
    if PLACED:  # the row of a token lies at (sequence, position) of its staging
        written = tl.load(rows + token, mask=mask, other=-1) >= 0
        if TWIN[1] > 0:
            written |= tl.load(twin_rows + token, mask=mask, other=-1) >= 0
        mask = mask & written
        sequence = tl.load(places + token, mask=mask, other=0).to(tl.int64)
        start = sequence * place_stride + position.to(tl.int64) * token_stride + head * head_stride
    else:
        start = token.to(tl.int64) * token_stride + head * head_stride
    values = rotated_rows(x, start, mask, table, position, table_stride, R, FIELD[1], FIELD[2], LAYOUT)
    if KEEP:
        column = tl.arange(0, FIELD[2])
        inside = mask[:, None] & (column < FIELD[1])[None, :]
        place = (token.to(tl.int64) * HEADS + head) * FIELD[1]
        tl.store(kept + place[:, None] + column[None, :], values, mask=inside)
    _store_rows(pool, rows, token, mask, head, values, scale, pool_stride, FIELD, S)
    if TWIN[1] > 0:
        _store_rows(twin, twin_rows, token, mask, head, values, twin_scale, twin_stride, TWIN, S)


@triton.jit
def _rotate_queries(
    unit,
    q,
    token_stride,
    head_stride,
    turned,
    table,
    positions,
    table_stride,
    tokens,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    R: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = unit.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mask = row < tokens * HEADS
    token, head = row // HEADS, row % HEADS
    position = tl.zeros([ROWS], tl.int32)
    if R > 0:
        position = tl.load(positions + token, mask=mask, other=0)
    start = token * token_stride + head * head_stride
    values = rotated_rows(q, start, mask, table, position, table_stride, R, DIM, PADDED, LAYOUT)
    column = tl.arange(0, PADDED)
    tl.store(turned + row[:, None] * DIM + column[None, :], values, mask=mask[:, None] & (column < DIM)[None, :])


@triton.jit
def _append(
    pool,
    rows,
    twin,
    twin_rows,
    table,
    positions,
    places,
    x0,
    x1,
    scale0,
    scale1,
    twin_scale0,
    twin_scale1,
    kept,
    q,
    turned,
    pool_stride,
    twin_stride,
    table_stride,
    place_stride0,
    place_stride1,
    token_stride0,
    head_stride0,
    token_stride1,
    head_stride1,
    q_token_stride,
    q_head_stride,
    tokens,
    units0,
    units1,
    FIELD0: tl.constexpr,
    FIELD1: tl.constexpr,
    TWIN0: tl.constexpr,
    TWIN1: tl.constexpr,
    HEADS0: tl.constexpr,
    HEADS1: tl.constexpr,
    ROTATED: tl.constexpr,
    R: tl.constexpr,
    LAYOUT: tl.constexpr,
    KEEP: tl.constexpr,
    PLACED: tl.constexpr,
    Q_HEADS: tl.constexpr,
    Q_DIM: tl.constexpr,
    Q_PADDED: tl.constexpr,
    S: tl.constexpr,
    ROWS0: tl.constexpr,
    ROWS1: tl.constexpr,
    Q_ROWS: tl.constexpr,
):
    unit = tl.program_id(0)
    if unit < units0:
        _append_field(
            unit, x0, token_stride0, head_stride0, kept, scale0, twin_scale0, pool, rows, twin, twin_rows, table,
            positions, places, pool_stride, twin_stride, table_stride, place_stride0, tokens, FIELD0, TWIN0, HEADS0,
            R if ROTATED == 0 else 0, LAYOUT, KEEP == 0, PLACED, S, ROWS0,
        )  # fmt: skip
    elif unit < units0 + units1:
        if HEADS1 > 0:
            _append_field(
                unit - units0, x1, token_stride1, head_stride1, kept, scale1, twin_scale1, pool, rows, twin, twin_rows,
                table, positions, places, pool_stride, twin_stride, table_stride, place_stride1, tokens, FIELD1, TWIN1,
                HEADS1, R if ROTATED == 1 else 0, LAYOUT, KEEP == 1, PLACED, S, ROWS1,
            )  # fmt: skip
    elif Q_HEADS > 0:
        _rotate_queries(
            unit - units0 - units1, q, q_token_stride, q_head_stride, turned, table, positions, table_stride, tokens,
            Q_HEADS, Q_DIM, Q_PADDED, R, LAYOUT, Q_ROWS,
        )  # fmt: skip


def append(
    op: str,
    names: Sequence[str],
    values: Sequence[torch.Tensor],
    store: Store,
    twin: Store | None,
    tokens_per_page: int,
    rotation: Rotation | None = None,
    q: torch.Tensor | None = None,
    keep: int | None = None,
    places: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Store one row a token, of one or two fields, and rotate the queries beside it.

    ``values``: a field each, [T, heads, dim]; with ``places`` (sequences i32 [T]) and ``positions`` they are staging,
    [S, L, heads, dim]. Returns q rotated and, where ``keep`` is the index of a field, that one after rotation.
    """
    values = [_rows_in_line(x) for x in values]
    heads, dims = [x.shape[-2] for x in values], [x.shape[-1] for x in values]
    fields = row_fields(names, heads, dims)
    pools = [one for one in (store, twin) if one is not None]
    check_aligned(op, **dict(zip(("pool", "twin"), (one.pool for one in pools), strict=False)))
    own = field_places(op, store.encoding, fields, tokens_per_page)
    high = field_places(op, twin.encoding, fields, tokens_per_page) if twin else ()
    tokens = store.rows.shape[0]
    q = None if q is None else _rows_in_line(q)
    turned = None if q is None else q.new_empty(q.shape)
    kept = None if keep is None else values[keep].new_empty((tokens, heads[keep], dims[keep]))
    two, staged = len(values) > 1, places is not None
    padded = [place.padded for place in own]
    tile = TILE if tokens >= MANY_TOKENS else SMALL_TILE
    rows = [max(1, tile // width) for width in padded]
    units = [triton.cdiv(tokens, count) * head for count, head in zip(rows, heads, strict=True)]
    q_padded = 1 if q is None else triton.next_power_of_2(q.shape[2])
    q_rows = max(1, tile // q_padded)
    q_units = 0 if q is None else triton.cdiv(tokens * q.shape[1], q_rows)
    grid = sum(units) + q_units
    if not grid:
        return turned, kept
    where = rotation.positions if rotation else positions
    strides = [(x.stride(-3), x.stride(-2)) for x in values]
    _append[(grid,)](
        store.pool,
        store.rows,
        twin.pool if twin else None,
        twin.rows if twin else None,
        rotation.table if rotation else None,
        where,
        places,
        values[0],
        values[1] if two else None,
        store.scales[0],
        store.scales[1] if two else None,
        twin.scales[0] if twin else None,
        twin.scales[1] if twin and two else None,
        kept,
        q,
        turned,
        store.pool.stride(0),
        twin.pool.stride(0) if twin else 0,
        rotation.table.stride(0) if rotation else 0,
        values[0].stride(0) if staged else 0,
        values[1].stride(0) if staged and two else 0,
        *strides[0],
        *(strides[1] if two else (0, 0)),
        *((q.stride(0), q.stride(1)) if q is not None else (0, 0)),
        tokens,
        units[0],
        units[1] if two else 0,
        own[0].constants,
        own[1].constants if two else NOTHING,
        high[0].constants if twin else NOTHING,
        high[1].constants if twin and two else NOTHING,
        heads[0],
        heads[1] if two else 0,
        rotation.field if rotation else -1,
        rotation.table.shape[1] if rotation else 0,
        rotation.layout if rotation else "",
        -1 if keep is None else keep,
        staged,
        q.shape[1] if q is not None else 0,
        q.shape[2] if q is not None else 0,
        q_padded,
        tokens_per_page,
        rows[0],
        rows[1] if two else 1,
        q_rows,
        num_warps=4,
        enable_fp_fusion=False,
    )
    return turned, kept


def _rows_in_line(x: torch.Tensor) -> torch.Tensor:
    """The tensor with its features side by side."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
