"""kvc::index_topk in Triton: scores as sortable numbers, of which the library takes the largest.

A key holds the score in its upper half, so that its order is that of the scores with NaN above all, and in its lower
half how far the position is from the end: of equal scores the lower position is the larger key, and no two are equal.
"""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

from kvc.encodings import Field
from kvc.ops.device.paging import page_of
from kvc.ops.device.rows import check_aligned, field_places, load_field, row_offset

POSITIONS = 64  # of a tile
LAST = 0x7FFFFFFF
NONE = -(2**63)  # the key of a position that does not count


@triton.jit
def _keys(
    index_q,
    weights,
    pool,
    page_table,
    positions,
    sequence_ids,
    keys,
    q_token,
    q_head,
    weight_token,
    weight_head,
    pool_stride,
    table_stride,
    table_step,
    batch,
    width,
    length,
    score_scale,
    weight_scale,
    FIELD: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    S: tl.constexpr,
    N: tl.constexpr,
    NOTHING: tl.constexpr,
    LAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    CODEC: tl.constexpr = FIELD[0]  # a text in a tuple is no constant by itself
    DIM: tl.constexpr = FIELD[1]
    PADDED: tl.constexpr = FIELD[2]
    token = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * N + tl.arange(0, N)
    sequence = tl.load(sequence_ids + token).to(tl.int64)
    known = (sequence >= 0) & (sequence < batch)
    seen = known & (position <= tl.load(positions + token)) & (position < length)
    key = tl.full([N], NOTHING, tl.int64)
    if tl.sum(seen.to(tl.int32), 0) > 0:
        page = page_of(page_table + sequence * table_stride, position, table_step, width, seen, S)
        data = row_offset(page, position % S, 0, pool_stride, FIELD[3], FIELD[4], S)
        scales = row_offset(page, position % S, 0, pool_stride, FIELD[5], FIELD[6], S)
        rows = load_field(pool, data, pool, scales, page >= 0, None, CODEC, DIM, PADDED)
        head, feature = tl.arange(0, HEADS_PADDED), tl.arange(0, PADDED)
        inside = (head < HEADS)[None, :] & (feature < DIM)[:, None]
        place = token * q_token + head[None, :] * q_head + feature[:, None]
        q = tl.load(index_q + place, mask=inside, other=0).to(tl.float32)
        weight = tl.load(weights + token * weight_token + head * weight_head, mask=head < HEADS, other=0.0)
        each = tl.maximum(
            tl.dot(rows, q, input_precision=PRECISION) * score_scale, 0.0, propagate_nan=tl.PropagateNan.ALL
        )
        score = tl.sum(tl.where((head < HEADS)[None, :], each * (weight * weight_scale)[None, :], 0.0), 1)
        score = tl.where(score == 0.0, 0.0, score)  # one zero: its sign has no order
        bits = score.to(tl.int32, bitcast=True)
        order = tl.where(score != score, LAST, bits ^ ((bits >> 31) & LAST))
        key = tl.where(
            page >= 0, (order.to(tl.int64) << 32) | (tl.full([N], LAST, tl.int32) - position).to(tl.int64), key
        )
    tl.store(keys + token * length + position, key, mask=position < length)


def index_topk(
    index_q: torch.Tensor,
    weights: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    *,
    encoding: str,
    tokens_per_page: int,
    top_k: int,
    score_scale: float,
) -> torch.Tensor:
    """As the reference."""
    check_aligned("index_topk", pool=pool)
    (tokens, heads, dim), (batch, width) = index_q.shape, page_table.shape
    length = width * tokens_per_page
    selected = positions.new_full((tokens, top_k), -1)
    if not (tokens and length):
        return selected
    index_q = index_q if index_q.stride(2) == 1 else index_q.contiguous()
    (place,) = field_places("index_topk", encoding, (Field("key", 1, dim),), tokens_per_page)
    codec, _, padded, *offsets = place.constants
    keys = index_q.new_empty((tokens, length), dtype=torch.int64)
    _keys[(tokens, triton.cdiv(length, POSITIONS))](
        index_q,
        weights,
        pool,
        page_table,
        positions.contiguous(),
        sequence_ids.contiguous(),
        keys,
        *index_q.stride()[:2],
        *weights.stride(),
        pool.stride(0),
        *page_table.stride(),
        batch,
        width,
        length,
        score_scale,
        heads**-0.5,
        (codec, dim, max(16, padded), *offsets),
        heads,
        max(16, triton.next_power_of_2(heads)),
        tokens_per_page,
        POSITIONS,
        NONE,
        LAST,
        "ieee" if index_q.dtype == torch.float32 else "tf32x3",
        num_warps=4,
    )
    best = keys.topk(min(top_k, length), 1).values
    found = torch.where(best == NONE, -1, LAST - (best & 0xFFFFFFFF))
    selected[:, : found.shape[1]] = found
    return selected
