"""Context attention: a step's own rows, causal, after cached rows of pages or gathered before, in one launch.

Sequences have any numbers of tokens. A program takes a tile of queries that share their keys (tokens of one sequence
times the heads of a group) and finds its sequence from ``query_starts`` on the device; the grid follows from shapes.
Keys are the long side of every product, as in `kvc.ops.device.decode`, and modes are those of `kvc.ops.device.tiles`.
"""

# mypy: ignore-errors
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kvc.encodings import Field
from kvc.ops.device.decode import LOG2_E, Gathered, in_line, load_rows, modes_of, places_of
from kvc.ops.device.gather import NOTHING, Kept, Source
from kvc.ops.device.paging import page_of
from kvc.ops.device.retained import is_retained
from kvc.ops.device.rows import check_aligned
from kvc.ops.device.tiles import guarded, halves, load_dense, load_queries, mode_of_dense, product, value_factor

ROWS = 64  # of a tile: queries times heads of a group
KEYS = 64


@dataclass(frozen=True)
class Own:
    """A step's own rows: k [T, Hk, D] and v [T, Hk, V]; under scales (f32 [2]) they are codes turned to numbers."""

    k: torch.Tensor
    v: torch.Tensor
    scales: Sequence[torch.Tensor | None] = (None, None)


@triton.jit
def tile_of(program, query_starts, sequences, TOKENS: tl.constexpr, PADDED: tl.constexpr):
    """Sequence, first token, number of tokens and tile within it; the sequence is ``sequences`` past the last tile."""
    index = tl.arange(0, PADDED)
    there = index < sequences
    start = tl.load(query_starts + index, mask=there, other=0)
    count = tl.load(query_starts + index + 1, mask=there, other=0) - start
    tiles = tl.where(there, tl.cdiv(count, TOKENS), 0)
    until = tl.cumsum(tiles, 0)
    sequence = tl.sum((there & (until <= program)).to(tl.int32), 0)
    mine = index == sequence
    first, number = tl.sum(tl.where(mine, start, 0), 0), tl.sum(tl.where(mine, count, 0), 0)
    return sequence, first, number, program - tl.sum(tl.where(mine, until - tiles, 0), 0)


@triton.jit
def _weigh(scores, v, v_low, most, total, acc, seen, EXPOSED: tl.constexpr, MODE: tl.constexpr):
    """One step of the running softmax; with ``EXPOSED`` some keys are seen by some queries only."""
    scores = tl.where(seen, scores, float("-inf"))
    highest = tl.maximum(most, tl.max(scores, 0))
    safe = tl.where(highest == float("-inf"), 0.0, highest)
    weights = tl.exp2(scores - safe[None, :])
    kept = tl.exp2(most - safe)
    acc = acc * kept[None, :]
    if EXPOSED:  # some rows are seen by some queries only
        acc, v, v_low = guarded(acc, v, v_low, seen)
    p, p_low = halves(weights, "split" if MODE == "bf16" else MODE)
    acc = product(tl.trans(v), tl.trans(v_low), p, p_low, acc, MODE)
    return highest, total * kept + tl.sum(weights, 0), acc


@triton.jit
def _context(
    q,
    k,
    v,
    source0,
    source1,
    scale0,
    scale1,
    twin,
    twin_scale0,
    twin_scale1,
    table,
    twin_table,
    committed,
    query_starts,
    q_scale,
    k_scale,
    v_scale,
    out,
    lse,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
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
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    LOW0: tl.constexpr,
    LOW1: tl.constexpr,
    HIGH0: tl.constexpr,
    HIGH1: tl.constexpr,
    CACHED: tl.constexpr,
    OWN: tl.constexpr,
    PAGED: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    PAGES: tl.constexpr,
    S: tl.constexpr,
    MODE0: tl.constexpr,
    MODE1: tl.constexpr,
    OWN_MODE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    SEQUENCES: tl.constexpr,
):
    TOKENS: tl.constexpr = M // GROUP
    CODEC0: tl.constexpr = LOW0[0]  # texts in a tuple are no constants by themselves
    CODEC1: tl.constexpr = LOW1[0]
    D: tl.constexpr = LOW0[1]
    V: tl.constexpr = LOW1[1]
    D_PADDED: tl.constexpr = LOW0[2]
    V_PADDED: tl.constexpr = LOW1[2]
    head = tl.program_id(1)
    last_first = tl.num_programs(0) - 1 - tl.program_id(0)  # late tiles see the most keys
    sequence, start, count, tile = tile_of(last_first, query_starts, sequences, TOKENS, SEQUENCES)
    if sequence >= sequences:
        return
    row = tl.arange(0, M)
    query = tile * TOKENS + row // GROUP
    asked = (row < TOKENS * GROUP) & (query < count)
    query_head = head * GROUP + row % GROUP
    token = (start + query).to(tl.int64)
    q_start = token * q_token + query_head * q_head
    factor = softmax_scale * LOG2_E
    if q_scale is not None:
        factor *= tl.load(q_scale)
    most = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([V_PADDED, M], tl.float32)
    nothing = tl.zeros([N, M], tl.float32)
    if CACHED:
        a, a_low, a_scale = load_queries(q, q_start, asked, MODE0, D, D_PADDED)
        a_scale *= value_factor(scale0, MODE0, CODEC0) * factor
        stop = tl.load(committed + sequence)
        if not PAGED:
            source0 += sequence.to(tl.int64) * sequence_stride0
            source1 += sequence.to(tl.int64) * sequence_stride1
        tables = table + sequence.to(tl.int64) * table_stride
        for first in range(0, stop, N):
            position = first + tl.arange(0, N)
            page = page_of(tables, position, table_step, width, position < stop, S)
            held = page >= 0
            taken = tl.zeros([N], tl.int1)
            high_page = tl.zeros([N], tl.int32)
            if HIGH0[1] > 0:
                twins = twin_table + sequence.to(tl.int64) * twin_table_stride
                high_page = page_of(twins, position, twin_table_step, width, held, S)
                taken = (high_page >= 0) & is_retained(position, stop, FIRST, LAST, PAGES, S)
            x, x_low = load_rows(
                source0, scale0, twin, twin_scale0, page, high_page, taken, position, held, head, stride0, twin_stride,
                row_stride0, LOW0, HIGH0, MODE0, PAGED, S,
            )  # fmt: skip
            y, y_low = load_rows(
                source1, scale1, twin, twin_scale1, page, high_page, taken, position, held, head, stride1, twin_stride,
                row_stride1, LOW1, HIGH1, MODE1, PAGED, S,
            )  # fmt: skip
            scores = product(x, x_low, a, a_low, nothing, MODE0) * a_scale[None, :]
            seen = held[:, None] & asked[None, :]
            most, total, acc = _weigh(scores, y, y_low, most, total, acc, seen, False, MODE1)
        acc *= value_factor(scale1, MODE1, CODEC1)
    if OWN:
        b, b_low, b_scale = load_queries(q, q_start, asked, OWN_MODE, D, D_PADDED)
        b_scale *= factor
        if k_scale is not None:
            b_scale *= tl.load(k_scale)
            acc /= tl.load(v_scale)  # own codes are weighed as they are
        common = tile * TOKENS // N * N  # keys before the tile, which all of its queries see
        for first in range(0, common, N):
            rows = (start + first + tl.arange(0, N)).to(tl.int64)
            all_there = tl.full([N], 1, tl.int1)
            x, x_low = halves(load_dense(k, rows * k_token + head * k_head, all_there, D, D_PADDED), OWN_MODE)
            y, y_low = halves(load_dense(v, rows * v_token + head * v_head, all_there, V, V_PADDED), OWN_MODE)
            scores = product(x, x_low, b, b_low, nothing, OWN_MODE) * b_scale[None, :]
            most, total, acc = _weigh(scores, y, y_low, most, total, acc, asked[None, :], False, OWN_MODE)
        for first in range(common, tl.minimum(count, (tile + 1) * TOKENS), N):
            key = first + tl.arange(0, N)
            there = key < count
            rows = (start + key).to(tl.int64)
            x, x_low = halves(load_dense(k, rows * k_token + head * k_head, there, D, D_PADDED), OWN_MODE)
            y, y_low = halves(load_dense(v, rows * v_token + head * v_head, there, V, V_PADDED), OWN_MODE)
            scores = product(x, x_low, b, b_low, nothing, OWN_MODE) * b_scale[None, :]
            seen = asked[None, :] & (key[:, None] <= query[None, :])
            most, total, acc = _weigh(scores, y, y_low, most, total, acc, seen, True, OWN_MODE)
        if k_scale is not None:
            acc *= tl.load(v_scale)
    empty = most == float("-inf")
    divisor = tl.where(empty, 1.0, total)
    place = token * (KV_HEADS * GROUP) + query_head
    column = tl.arange(0, V_PADDED)
    inside = asked[None, :] & (column < V)[:, None]
    result = acc / divisor[None, :]
    tl.store(out + place[None, :] * V + column[:, None], result.to(out.dtype.element_ty), mask=inside)
    tl.store(lse + place, tl.where(empty, most, (most + tl.log2(divisor)) / LOG2_E), mask=asked)


def attend(
    op: str,
    q: torch.Tensor,
    fields: tuple[Field, ...],
    own: Own | None,
    cached: Source | Gathered | None,
    committed: torch.Tensor,
    query_starts: torch.Tensor,
    tokens_per_page: int,
    softmax_scale: float,
    dtype: torch.dtype,
    twin: Source | None = None,
    kept: Kept | None = None,
    q_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [T, H, D] over the first ``committed`` cached rows and then own ones; either may be left out.

    Returns out [T, H, V] in ``dtype`` and lse f32 [T, H]; 0 and -inf for tokens from query_starts[-1] on.
    """
    tokens, heads = q.shape[:2]
    out = q.new_zeros((tokens, heads, fields[1].dim), dtype=dtype)
    lse = q.new_full((tokens, heads), float("-inf"), dtype=torch.float32)
    sequences, kv_heads = query_starts.shape[0] - 1, fields[0].heads
    group = heads // kv_heads
    if not (tokens and sequences):
        return out, lse
    paged = isinstance(cached, Source)
    check_aligned(op, pool=cached.pool if paged else None, twin=twin and twin.pool)
    q, (k, v) = in_line(q), (None, None) if own is None else map(in_line, (own.k, own.v))
    low = places_of(op, cached.encoding if cached else "fp32", fields, tokens_per_page)
    high = places_of(op, twin.encoding, fields, tokens_per_page) if twin else (NOTHING, NOTHING)
    sources = (None, None) if cached is None else (cached.pool,) * 2 if paged else [in_line(x) for x in cached.rows]
    modes = ("ieee", "ieee") if cached is None else modes_of(cached, low, q, twin is not None)
    own_mode = "ieee" if own is None else mode_of_dense(_dtype(k), _dtype(q))
    tile = max(ROWS, triton.next_power_of_2(group))
    grid = triton.cdiv(tokens, tile // group) + sequences, kv_heads
    _context[grid](
        q,
        k,
        v,
        *sources,
        *(cached.scales if cached else (None, None)),
        twin.pool if twin else None,
        *(twin.scales if twin else (None, None)),
        cached.table if cached else None,
        twin.table if twin else None,
        committed.contiguous(),
        query_starts.contiguous(),
        q_scale,
        *(own.scales if own else (None, None)),
        out,
        lse,
        *q.stride()[:2],
        *(k.stride()[:2] if own else (0, 0)),
        *(v.stride()[:2] if own else (0, 0)),
        *(0 if x is None else x.stride(0 if paged else 2) for x in sources),
        twin.pool.stride(0) if twin else 0,
        *(0 if x is None or paged else x.stride(0) for x in sources),
        *(0 if x is None or paged else x.stride(1) for x in sources),
        *(cached.table.stride() if cached else (0, 0)),
        *(twin.table.stride() if twin else (0, 0)),
        sequences,
        cached.table.shape[1] if cached else 0,
        softmax_scale,
        group,
        kv_heads,
        *low,
        *high,
        cached is not None,
        own is not None,
        paged,
        kept.first if twin else 0,
        kept.last if twin else 0,
        twin is not None and kept.unit == "page",
        tokens_per_page,
        *modes,
        own_mode,
        tile,
        32 if "split" in modes or "ieee" in (*modes, own_mode) else KEYS,
        triton.next_power_of_2(sequences),
        num_warps=4 if tile <= ROWS else 8,
        num_stages=2,
    )
    return out, lse


def _dtype(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
