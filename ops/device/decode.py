"""Generation attention over cached rows of any encoding: what every decode op can fall back to.

A program takes a tile of queries that share their keys (the query tokens of a sequence times the heads of a group) and
a split of the sequence's rows; the splits are merged afterwards. Keys are the long side of every product, because there
are few queries: S^T = K Q^T and O^T = V^T P^T.

Latent rows (``LATENT``) are scored by both fields and weigh the first one; others are scored by field 0 and weigh
field 1. Rows come from pages, from pages and a twin, or gathered before (``PAGED`` False). How a field takes part in
products is its mode, see `kvc.ops.device.tiles`.
"""

# mypy: ignore-errors
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch.nn.functional import pad

from kvc.encodings import Field
from kvc.ops.device.gather import NOTHING, Kept, Source
from kvc.ops.device.paging import page_of
from kvc.ops.device.retained import is_retained
from kvc.ops.device.rows import check_aligned, field_places, load_field, row_offset
from kvc.ops.device.splits import merge, partials, split_bounds, split_count
from kvc.ops.device.tiles import (
    guarded,
    halves,
    load_codes,
    load_dense,
    load_queries,
    mode_of,
    mode_of_dense,
    product,
    value_factor,
)

LOG2_E = tl.constexpr(1.4426950408889634)
WIDE = 256  # features from which on tiles of keys are small
QUERIES = 16  # of a tile at least, and at most where rows are wide
MOST_QUERIES = 64


@dataclass(frozen=True)
class Gathered:
    """Rows that were gathered before, [B, L, heads, dim] a field, and the page table that says which count.

    Under scales (f32 [2]) they are e4m3 codes turned to numbers, fp16.
    """

    rows: Sequence[torch.Tensor]
    table: torch.Tensor
    scales: Sequence[torch.Tensor | None] = (None, None)

    @property
    def encoding(self) -> str:
        """What the numbers are."""
        return "fp32" if self.scales[0] is None else "fp8"


@triton.jit
def load_rows(
    source,
    scale,
    twin,
    twin_scale,
    page,
    high_page,
    taken,
    position,
    held,
    head,
    stride,
    twin_stride,
    row_stride,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    MODE: tl.constexpr,
    PAGED: tl.constexpr,
    S: tl.constexpr,
):
    """A field's rows as the two tiles of its mode; of a dense source ``stride`` is of heads, ``row_stride`` of rows."""
    DIM: tl.constexpr = LOW[1]
    PADDED: tl.constexpr = LOW[2]
    CODEC: tl.constexpr = LOW[0]
    if PAGED:
        data = row_offset(page, position % S, head, stride, LOW[3], LOW[4], S)
        scales = row_offset(page, position % S, head, stride, LOW[5], LOW[6], S)
        if MODE == "codes":
            value = load_codes(source, data, scales, held, CODEC, DIM, PADDED)
        elif MODE == "bf16":
            value = load_dense(source.to(tl.pointer_type(tl.bfloat16)), data // 2, held, DIM, PADDED)
        else:
            value = load_field(source, data, source, scales, held & ~taken, scale, CODEC, DIM, PADDED)
        if HIGH[1] > 0 and tl.sum(taken.to(tl.int32)) > 0:
            data = row_offset(high_page, position % S, head, twin_stride, HIGH[3], HIGH[4], S)
            scales = row_offset(high_page, position % S, head, twin_stride, HIGH[5], HIGH[6], S)
            TWIN_CODEC: tl.constexpr = HIGH[0]
            high = load_field(twin, data, twin, scales, taken, twin_scale, TWIN_CODEC, DIM, PADDED)
            value = tl.where(taken[:, None], high, value)
    else:
        start = position.to(tl.int64) * row_stride + head * stride
        value = load_dense(source, start, held, DIM, PADDED)
        if MODE == "split" or MODE == "ieee":
            value = value.to(tl.float32)
            if CODEC == "fp8":
                value *= tl.load(scale)
    return halves(value, MODE)


@triton.jit
def _decode(
    q0,
    q1,
    source0,
    source1,
    scale0,
    scale1,
    twin,
    twin_scale0,
    twin_scale1,
    table,
    twin_table,
    lengths,
    committed,
    parts,
    part_lse,
    q0_token,
    q0_head,
    q1_token,
    q1_head,
    stride0,
    stride1,
    twin_stride,
    sequence_stride0,
    sequence_stride1,
    row_stride0,
    row_stride1,
    table_stride,
    table_step,
    twin_table_stride,
    twin_table_step,
    sequences,
    width,
    softmax_scale,
    QUERIES: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    TILES: tl.constexpr,
    LOW0: tl.constexpr,
    LOW1: tl.constexpr,
    HIGH0: tl.constexpr,
    HIGH1: tl.constexpr,
    LATENT: tl.constexpr,
    PAGED: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    PAGES: tl.constexpr,
    S: tl.constexpr,
    MODE0: tl.constexpr,
    MODE1: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    SPLITS: tl.constexpr,
):
    sequence = (tl.program_id(0) // (KV_HEADS * TILES)).to(tl.int64)
    head = tl.program_id(0) // TILES % KV_HEADS
    row = tl.program_id(0) % TILES * M + tl.arange(0, M)
    asked = row < QUERIES * GROUP
    query, query_head = row // GROUP, head * GROUP + row % GROUP
    token = sequence * QUERIES + query
    q_start = token.to(tl.int64) * q0_token + query_head * q0_head
    CODEC0: tl.constexpr = LOW0[0]  # texts in a tuple are no constants by themselves
    CODEC1: tl.constexpr = LOW1[0]
    a, a_low, a_scale = load_queries(q0, q_start, asked, MODE0, LOW0[1], LOW0[2])
    a_scale *= value_factor(scale0, MODE0, CODEC0) * (softmax_scale * LOG2_E)
    if LATENT:
        q_start = token.to(tl.int64) * q1_token + query_head * q1_head
        b, b_low, b_scale = load_queries(q1, q_start, asked, MODE1, LOW1[1], LOW1[2])
        b_scale *= value_factor(scale1, MODE1, CODEC1) * (softmax_scale * LOG2_E)
    length = tl.load(lengths + sequence)
    visible = tl.where(asked, length - QUERIES + query + 1, 0)
    base = tl.load(committed + sequence) if HIGH0[1] > 0 else 0
    start, stop = split_bounds(length, tl.program_id(1), SPLITS, N)
    V_DIM: tl.constexpr = LOW0[1] if LATENT else LOW1[1]
    V_PADDED: tl.constexpr = LOW0[2] if LATENT else LOW1[2]
    most = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([V_PADDED, M], tl.float32)
    nothing = tl.zeros([N, M], tl.float32)
    V_MODE: tl.constexpr = MODE0 if LATENT else MODE1
    if not PAGED:
        source0 += sequence * sequence_stride0
        source1 += sequence * sequence_stride1
    for first in range(start, stop, N):
        position = first + tl.arange(0, N)
        inside = position < stop
        page = page_of(table + sequence * table_stride, position, table_step, width, inside, S)
        held = page >= 0
        taken = tl.zeros([N], tl.int1)
        high_page = tl.zeros([N], tl.int32)
        if HIGH0[1] > 0:
            high_page = page_of(twin_table + sequence * twin_table_stride, position, twin_table_step, width, held, S)
            taken = (high_page >= 0) & is_retained(position, base, FIRST, LAST, PAGES, S)
        x, x_low = load_rows(
            source0, scale0, twin, twin_scale0, page, high_page, taken, position, held, head, stride0, twin_stride,
            row_stride0, LOW0, HIGH0, MODE0, PAGED, S,
        )  # fmt: skip
        y, y_low = load_rows(
            source1, scale1, twin, twin_scale1, page, high_page, taken, position, held, head, stride1, twin_stride,
            row_stride1, LOW1, HIGH1, MODE1, PAGED, S,
        )  # fmt: skip
        scores = product(x, x_low, a, a_low, nothing, MODE0) * a_scale[None, :]
        if LATENT:
            scores += product(y, y_low, b, b_low, nothing, MODE1) * b_scale[None, :]
        seen = held[:, None] & (position[:, None] < visible[None, :])
        scores = tl.where(seen, scores, float("-inf"))
        highest = tl.maximum(most, tl.max(scores, 0))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores - safe[None, :])
        kept = tl.exp2(most - safe)
        v, v_low = (x, x_low) if LATENT else (y, y_low)
        acc = acc * kept[None, :]
        if QUERIES > 1:  # some rows are seen by some queries only
            acc, v, v_low = guarded(acc, v, v_low, seen)
        p, p_low = halves(weights, "split" if V_MODE == "bf16" else V_MODE)
        acc = product(tl.trans(v), tl.trans(v_low), p, p_low, acc, V_MODE)
        total = total * kept + tl.sum(weights, 0)
        most = highest
    empty = most == float("-inf")
    divisor = tl.where(empty, 1.0, total)
    if LATENT:
        factor = value_factor(scale0, MODE0, CODEC0)
    else:
        factor = value_factor(scale1, MODE1, CODEC1)
    out = acc * (factor / divisor)[None, :]
    place = (tl.program_id(1).to(tl.int64) * sequences * QUERIES + token) * (KV_HEADS * GROUP) + query_head
    column = tl.arange(0, V_PADDED)
    inside = asked[None, :] & (column < V_DIM)[:, None]
    tl.store(parts + place[None, :] * V_DIM + column[:, None], out.to(parts.dtype.element_ty), mask=inside)
    tl.store(part_lse + place, tl.where(empty, most, (most + tl.log2(divisor)) / LOG2_E), mask=asked)


def decode(
    op: str,
    queries: Sequence[torch.Tensor],
    fields: tuple[Field, ...],
    history: Source | Gathered,
    lengths: torch.Tensor,
    tokens_per_page: int,
    softmax_scale: float,
    twin: Source | None = None,
    kept: Kept | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of as many query tokens a sequence; one query tensor [T, H, dim] a field that is scored.

    Returns out [T, H, V] in the queries' dtype and lse f32 [T, H].
    """
    latent, paged = len(queries) == 2, isinstance(history, Source)
    queries = [in_line(q) for q in queries]
    tokens, heads = queries[0].shape[:2]
    out = queries[0].new_zeros((tokens, heads, fields[0 if latent else 1].dim))
    lse = queries[0].new_full((tokens, heads), float("-inf"), dtype=torch.float32)
    (sequences, width), kv_heads = history.table.shape, fields[0].heads
    each, group = tokens // max(1, sequences), heads // kv_heads
    if not tokens:
        return out, lse
    check_aligned(op, pool=history.pool if paged else None, twin=twin and twin.pool)
    low = places_of(op, history.encoding, fields, tokens_per_page)
    high = places_of(op, twin.encoding, fields, tokens_per_page) if twin else (NOTHING, NOTHING)
    sources = (history.pool,) * 2 if paged else [_in_steps(x) for x in history.rows]
    wide = max(place[2] for place in low) >= WIDE
    tile = min(max(QUERIES, triton.next_power_of_2(each * group)), QUERIES if wide else MOST_QUERIES)
    tiles = triton.cdiv(each * group, tile)
    modes = modes_of(history, low, queries[0], twin is not None)
    keys = 32 if wide and modes[0] in ("ieee", "split") else 64
    programs = sequences * kv_heads * tiles
    splits = split_count(programs, width * tokens_per_page)
    parts, part_lse = partials(out, lse, splits)
    _decode[(programs, splits)](
        queries[0],
        queries[1] if latent else None,
        *sources,
        *history.scales,
        twin.pool if twin else None,
        *(twin.scales if twin else (None, None)),
        history.table,
        twin.table if twin else None,
        lengths.contiguous(),
        kept.committed.contiguous() if twin else None,
        parts,
        part_lse,
        *queries[0].stride()[:2],
        *(queries[1].stride()[:2] if latent else (0, 0)),
        *(x.stride(0 if paged else 2) for x in sources),
        twin.pool.stride(0) if twin else 0,
        *(0 if paged else x.stride(0) for x in sources),
        *(0 if paged else x.stride(1) for x in sources),
        *history.table.stride(),
        *(twin.table.stride() if twin else (0, 0)),
        sequences,
        width,
        softmax_scale,
        each,
        group,
        kv_heads,
        tiles,
        *low,
        *high,
        latent,
        paged,
        kept.first if twin else 0,
        kept.last if twin else 0,
        twin is not None and kept.unit == "page",
        tokens_per_page,
        *modes,
        tile,
        keys,
        splits,
        num_warps=8 if wide else 4,
        num_stages=2,
    )
    merge(parts, part_lse, out, lse)
    return out, lse


def modes_of(history: Source | Gathered, places: Sequence[tuple], q: torch.Tensor, mixed: bool) -> tuple[str, str]:
    """The mode of each field."""
    activations = _dtype(q)
    if isinstance(history, Source):
        return tuple(mode_of(place[0], activations, mixed) for place in places)
    return tuple(mode_of_dense(_dtype(x), activations) for x in history.rows)


def _dtype(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def places_of(op: str, encoding: str, fields: tuple[Field, ...], tokens_per_page: int) -> tuple[tuple, ...]:
    """Constants of both fields, at least 16 features wide: what a product of tiles needs."""
    places = field_places(op, encoding, fields, tokens_per_page)
    return tuple((c[0], c[1], max(16, c[2]), *c[3:]) for c in (place.constants for place in places))


def in_line(x: torch.Tensor) -> torch.Tensor:
    """The tensor with its features side by side."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _in_steps(x: torch.Tensor) -> torch.Tensor:
    """Rows that start at multiples of 16 bytes: triton 3.6 reads others wrong where it loads them ahead."""
    x = in_line(x)
    return x if x.stride(1) * x.itemsize % 16 == 0 else pad(x, (0, -x.shape[3] % 16))
