"""kvc::mla_decode in Triton for every encoding, activation dtype and size; also of rows that were gathered before.

A program holds heads of one query token and reads one split of the rows that the token sees, in blocks. Rows are
decoded to fp32 and rounded to the activation dtype for the products, whose sums are fp32.
"""

# mypy: ignore-errors
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kvc.encodings import Field
from kvc.ops.device.numbers import rounded
from kvc.ops.device.paging import page_of
from kvc.ops.device.retained import is_retained
from kvc.ops.device.rows import check_aligned, field_places, load_field, row_offset
from kvc.ops.device.splits import finished, merge, partials, split_bounds, split_count

NOTHING = ("", 0, 16, 0, 0, 0, 0)  # constants of a field that no pool holds
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _field(
    pool,
    stride,
    page,
    place,
    scale,
    twin,
    twin_stride,
    twin_page,
    taken,
    twin_scale,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    S: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """One field of cached rows ``[rows, PADDED]`` in DTYPE, 0 where none is held."""
    CODEC: tl.constexpr = LOW[0]
    data = row_offset(page, place, 0, stride, LOW[3], LOW[4], S)
    scales = row_offset(page, place, 0, stride, LOW[5], LOW[6], S)
    x = load_field(pool, data, pool, scales, (page >= 0) & ~taken, scale, CODEC, LOW[1], LOW[2])
    if HIGH[1] > 0 and tl.sum(taken.to(tl.int32)) > 0:
        TWIN_CODEC: tl.constexpr = HIGH[0]
        data = row_offset(twin_page, place, 0, twin_stride, HIGH[3], HIGH[4], S)
        scales = row_offset(twin_page, place, 0, twin_stride, HIGH[5], HIGH[6], S)
        high = load_field(twin, data, twin, scales, taken, twin_scale, TWIN_CODEC, HIGH[1], HIGH[2])
        x = tl.where(taken[:, None], high, x)
    return rounded(x, DTYPE)


@triton.jit
def _given(rows, start, stride, mask, DIM: tl.constexpr, PADDED: tl.constexpr, DTYPE: tl.constexpr):
    """One field of gathered rows ``[rows, PADDED]`` in DTYPE, 0 where the mask is not set."""
    feature = tl.arange(0, PADDED)
    inside = mask[:, None] & (feature < DIM)[None, :]
    x = tl.load(rows + start[:, None] * stride + feature[None, :], mask=inside, other=0.0)
    return rounded(x.to(tl.float32), DTYPE)


@triton.jit
def _queries(q, token, head, stride_t, stride_h, mask, DIM: tl.constexpr, PADDED: tl.constexpr):
    feature = tl.arange(0, PADDED)
    inside = mask[:, None] & (feature < DIM)[None, :]
    return tl.load(q + token * stride_t + head[:, None] * stride_h + feature[None, :], mask=inside, other=0.0)


@triton.jit
def _decode(
    q_latent,
    q_rope,
    pool,
    table,
    lengths,
    latent_scale,
    rope_scale,
    twin,
    twin_table,
    committed,
    latent_twin_scale,
    rope_twin_scale,
    given_latent,
    given_rope,
    parts,
    part_lse,
    q_stride_t,
    q_stride_h,
    r_stride_t,
    r_stride_h,
    pool_stride,
    table_stride,
    table_step,
    twin_stride,
    twin_table_stride,
    twin_table_step,
    latent_stride_b,
    latent_stride_l,
    rope_stride_b,
    rope_stride_l,
    width,
    tokens,
    queries,
    splits,
    softmax_scale,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    LATENT_TWIN: tl.constexpr,
    ROPE_TWIN: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    PAGES: tl.constexpr,
    S: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    DTYPE: tl.constexpr = q_latent.dtype.element_ty
    DIM: tl.constexpr = LATENT[1]
    PADDED: tl.constexpr = LATENT[2]
    BLOCKS: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    head = tl.program_id(0) % BLOCKS * BLOCK_H + tl.arange(0, BLOCK_H)
    token = (tl.program_id(0) // BLOCKS % tokens).to(tl.int64)
    split = tl.program_id(0) // BLOCKS // tokens
    sequence = token // queries
    here = head < HEADS
    q = _queries(q_latent, token, head, q_stride_t, q_stride_h, here, LATENT[1], LATENT[2])
    q_r = _queries(q_rope, token, head, r_stride_t, r_stride_h, here, ROPE[1], ROPE[2])
    length = tl.minimum(tl.load(lengths + sequence), width * S)
    visible = tl.maximum(length - queries + 1 + (token % queries).to(tl.int32), 0)
    start, stop = split_bounds(visible, split, splits, BLOCK)
    most = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, PADDED], tl.float32)
    kept_from = 0
    if LATENT_TWIN[1] > 0:
        kept_from = tl.load(committed + sequence)
    for first in range(start, stop, BLOCK):
        position = first + tl.arange(0, BLOCK)
        inside = position < stop
        page = page_of(table + sequence * table_stride, position, table_step, width, inside, S)
        held = page >= 0
        if LATENT[0] == "":
            row = position.to(tl.int64)
            latent, rope = given_latent + sequence * latent_stride_b, given_rope + sequence * rope_stride_b
            k = _given(latent, row, latent_stride_l, held, DIM, PADDED, DTYPE)
            k_r = _given(rope, row, rope_stride_l, held, ROPE[1], ROPE[2], DTYPE)
        else:
            taken = tl.zeros([BLOCK], tl.int1)
            twin_page = page
            if LATENT_TWIN[1] > 0:
                row = twin_table + sequence * twin_table_stride
                twin_page = page_of(row, position, twin_table_step, width, held, S)
                taken = (twin_page >= 0) & is_retained(position, kept_from, FIRST, LAST, PAGES, S)
            place = position % S
            k = _field(
                pool, pool_stride, page, place, latent_scale, twin, twin_stride, twin_page, taken, latent_twin_scale,
                LATENT, LATENT_TWIN, S, DTYPE,
            )  # fmt: skip
            k_r = _field(
                pool, pool_stride, page, place, rope_scale, twin, twin_stride, twin_page, taken, rope_twin_scale,
                ROPE, ROPE_TWIN, S, DTYPE,
            )  # fmt: skip
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        scores = tl.dot(q_r, tl.trans(k_r), scores, input_precision=PRECISION) * (softmax_scale * _LOG2_E)
        scores = tl.where(held[None, :], scores, float("-inf"))
        highest = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(highest == float("-inf"), 0.0, highest)
        alpha = tl.exp2(most - base)
        weights = tl.exp2(scores - base[:, None])
        total = total * alpha + tl.sum(weights, 1)
        acc = tl.dot(rounded(weights, DTYPE), k, acc * alpha[:, None], input_precision=PRECISION)
        most = highest
    out, lse = finished(acc, most, total)
    row = (split * tokens + token) * HEADS + head
    feature = tl.arange(0, PADDED)
    target = parts + row[:, None] * DIM + feature[None, :]
    tl.store(target, rounded(out, parts.dtype.element_ty), mask=here[:, None] & (feature < DIM)[None, :])
    tl.store(part_lse + row, lse, mask=here)


@dataclass(frozen=True)
class Pool:
    """A paged pool of latent rows: memory, page table i32 [B, W], scale operands, and the places of both fields."""

    pool: torch.Tensor
    table: torch.Tensor
    scales: tuple[torch.Tensor | None, torch.Tensor | None]
    places: tuple[tuple, tuple]


@dataclass(frozen=True)
class Kept:
    """Which rows are read from the twin."""

    committed: torch.Tensor | None = None
    first: int = 0
    last: int = 0
    unit: str = "token"


def pool_of(op, pool, table, scales, encoding, dims, tokens_per_page) -> Pool:
    """A pool with the constants that kernels take of its fields."""
    check_aligned(op, pool=pool)
    fields = Field("latent", 1, dims[0]), Field("rope", 1, dims[1])
    places = [place.constants for place in field_places(op, encoding, fields, tokens_per_page)]
    return Pool(pool, table, scales, tuple((*p[:2], max(16, p[2]), *p[3:]) for p in places))


def mla_decode(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    latent_scale: torch.Tensor | None,
    rope_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_table: torch.Tensor | None = None,
    committed: torch.Tensor | None = None,
    latent_twin_scale: torch.Tensor | None = None,
    rope_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    softmax_scale: float,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    dims = q_latent.shape[2], q_rope.shape[2]
    low = pool_of("mla_decode", pool, page_table, (latent_scale, rope_scale), encoding, dims, tokens_per_page)
    high = None
    if twin is not None:
        scales = latent_twin_scale, rope_twin_scale
        high = pool_of("mla_decode", twin, twin_table, scales, twin_encoding, dims, tokens_per_page)
    kept = Kept(committed, first, last, unit)
    return attend(q_latent, q_rope, low, high, kept, None, page_table, lengths, tokens_per_page, softmax_scale)


def attend(q_latent, q_rope, low, high, kept, given, table, lengths, tokens_per_page, softmax_scale):
    """Launch the kernel over pages (``low``, and ``high`` where there is a twin) or over ``given`` rows."""
    q_latent, q_rope = _in_line(q_latent), _in_line(q_rope)
    (tokens, heads, latent_dim), sequences = q_latent.shape, lengths.shape[0]
    out = torch.empty((tokens, heads, latent_dim), dtype=q_latent.dtype, device=q_latent.device)
    lse = torch.empty((tokens, heads), dtype=torch.float32, device=q_latent.device)
    if out.numel() == 0 or sequences == 0:
        return out, lse
    dims = latent_dim, q_rope.shape[2]
    padded = [max(16, triton.next_power_of_2(dim)) for dim in dims]
    places = low.places if low else [("", dim, size, 0, 0, 0, 0) for dim, size in zip(dims, padded, strict=True)]
    single = q_latent.dtype == torch.float32
    block_h = 16 if single or heads <= 16 else min(64, triton.next_power_of_2(heads))
    block = 16 if single else 32
    programs = tokens * triton.cdiv(heads, block_h)
    splits = split_count(programs, table.shape[1] * tokens_per_page)
    parts, part_lse = partials(out, lse, splits)
    given = [_in_line(x) for x in given] if given else (None, None)
    _decode[(programs * splits,)](
        q_latent,
        q_rope,
        low and low.pool,
        table,
        lengths,
        *(low.scales if low else (None, None)),
        high and high.pool,
        high and high.table,
        kept.committed,
        *(high.scales if high else (None, None)),
        *given,
        parts,
        part_lse,
        *q_latent.stride()[:2],
        *q_rope.stride()[:2],
        low.pool.stride(0) if low else 0,
        *table.stride(),
        high.pool.stride(0) if high else 0,
        *(high.table.stride() if high else (0, 0)),
        *(stride for x in given for stride in ((0, 0) if x is None else x.stride()[:2])),
        table.shape[1],
        tokens,
        tokens // sequences,
        splits,
        softmax_scale,
        *places,
        *(high.places if high else (NOTHING, NOTHING)),
        kept.first,
        kept.last,
        kept.unit == "page",
        tokens_per_page,
        heads,
        block_h,
        block,
        "ieee" if single else None,
        num_warps=8 if block_h > 16 or padded[0] > 256 else 4,
        num_stages=2,
    )
    merge(parts, part_lse, out, lse)
    return out, lse


def _in_line(x: torch.Tensor) -> torch.Tensor:
    """The tensor with its features side by side."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
