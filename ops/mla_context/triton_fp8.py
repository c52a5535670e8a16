"""FP8 attention over a step's own rows, V with its tokens innermost: nothing is turned inside the kernel.

Every block of keys has an accumulator of its own, which is added in fp32: the tensor cores' sum of FP8 products keeps
about 14 bits, and over many keys with a mean in V that is not enough. Probabilities are e4m3 relative to the row's
maximum, times 2^8, which uses the whole range of the format and falls out of the quotient.
"""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

from kvc.ops.device.context import tile_of

LOG2_E = tl.constexpr(1.4426950408889634)
WIDTHS = (128, 64, 128)  # features of q_nope, q_rope and V
RANGE = tl.constexpr(8.0)  # log2 of what probabilities are multiplied by
# Queries and keys of a tile, warps, stages: all are checked.
CONFIGS = ((128, 128, 8, 3), (64, 64, 4, 3))  # keys divide queries


@triton.jit
def _block(
    q_nope,
    q_rope,
    k,
    v,
    first,
    keys,
    count,
    query,
    factor,
    most,
    total,
    acc,
    k_token,
    v_row,
    MASKED: tl.constexpr,
):
    nope, rope, feature = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, 128)
    there = first + keys < count
    rows = (first + keys).to(tl.int64)[None, :] * k_token
    columns = feature.to(tl.int64)[:, None] * v_row + (first + keys)[None, :]
    if MASKED:
        k_nope = tl.load(k + rows + nope[:, None], mask=there[None, :], other=0.0)
        k_rope = tl.load(k + rows + 128 + rope[:, None], mask=there[None, :], other=0.0)
        # V is masked in whole groups of 16 columns, which are loaded at once; what lies behind the last token is 0.
        values = tl.load(v + columns, mask=(first + keys // 16 * 16 < count)[None, :], other=0.0)
    else:
        k_nope, k_rope = tl.load(k + rows + nope[:, None]), tl.load(k + rows + 128 + rope[:, None])
        values = tl.load(v + columns)
    scores = tl.dot(q_rope, k_rope, tl.dot(q_nope, k_nope))
    if MASKED:
        scores = tl.where(query[:, None] >= (first + keys)[None, :], scores, float("-inf"))
    highest = tl.maximum(most, tl.max(scores, 1) * factor)
    weights = tl.exp2(scores * factor - (highest - RANGE)[:, None])
    kept = tl.exp2(most - highest)
    acc = acc * kept[:, None] + tl.dot(weights.to(tl.float8e4nv), tl.trans(values))
    return highest, total * kept + tl.sum(weights, 1), acc


@triton.jit
def _own_rows(
    q_nope,
    q_rope,
    k,
    v,
    query_starts,
    q_scale,
    k_scale,
    v_scale,
    out,
    lse,
    nope_token,
    nope_head,
    rope_token,
    rope_head,
    k_token,
    k_head,
    v_head,
    v_row,
    sequences,
    heads,
    softmax_scale,
    M: tl.constexpr,
    N: tl.constexpr,
    SEQUENCES: tl.constexpr,
):
    head = tl.program_id(1)
    late_first = tl.num_programs(0) - 1 - tl.program_id(0)  # late tiles see the most keys
    sequence, start, count, tile = tile_of(late_first, query_starts, sequences, M, SEQUENCES)
    if sequence >= sequences:
        return
    index = tl.arange(0, SEQUENCES)
    before = index < sequence
    begins = tl.load(query_starts + index, mask=before, other=0)
    ends = tl.load(query_starts + index + 1, mask=before, other=0)
    column = tl.sum((ends - begins + 15) // 16, 0) * 16  # a multiple of 16 that the compiler sees
    query = tile * M + tl.arange(0, M)
    asked = query < count
    token = (start + query).to(tl.int64)
    nope, rope, keys, feature = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, N), tl.arange(0, 128)
    q_a = tl.load(
        q_nope + (token * nope_token + head * nope_head)[:, None] + nope[None, :], mask=asked[:, None], other=0.0
    )
    q_b = tl.load(
        q_rope + (token * rope_token + head * rope_head)[:, None] + rope[None, :], mask=asked[:, None], other=0.0
    )
    factor = softmax_scale * LOG2_E * tl.load(q_scale) * tl.load(k_scale)
    k += start.to(tl.int64) * k_token + head * k_head
    v += head.to(tl.int64) * v_head + column
    most = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, 128], tl.float32)
    for first in range(0, tile * M, N):
        most, total, acc = _block(
            q_a, q_b, k, v, first, keys, count, query, factor, most, total, acc, k_token, v_row, False
        )  # fmt: skip
    for first in range(tile * M, tl.minimum(count, (tile + 1) * M), N):
        most, total, acc = _block(
            q_a, q_b, k, v, first, keys, count, query, factor, most, total, acc, k_token, v_row, True
        )  # fmt: skip
    result = acc * (tl.load(v_scale) / total)[:, None]
    place = token * heads + head
    tl.store(out + place[:, None] * 128 + feature[None, :], result.to(out.dtype.element_ty), mask=asked[:, None])
    tl.store(lse + place, (most + tl.log2(total) - RANGE) / LOG2_E, mask=asked)


def own_rows(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    query_starts: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    softmax_scale: float,
    dtype: torch.dtype,
    config: tuple[int, int, int, int] = CONFIGS[0],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of codes (uint8) q_nope [T, H, 128], q_rope [T, H, 64], k [T, H, 192], v [H, 128, T + 16 B].

    Returns out [T, H, 128] in ``dtype`` and lse f32 [T, H]; 0 and -inf for tokens from query_starts[-1] on.
    """
    (tokens, heads), sequences = q_nope.shape[:2], query_starts.shape[0] - 1
    out = q_nope.new_zeros((tokens, heads, WIDTHS[2]), dtype=dtype)
    lse = q_nope.new_full((tokens, heads), float("-inf"), dtype=torch.float32)
    queries, keys, warps, stages = config
    if tokens and sequences:
        strides = (*q_nope.stride()[:2], *q_rope.stride()[:2], *k.stride()[:2], *v.stride()[:2])
        grid = triton.cdiv(tokens, queries) + sequences, heads
        sizes = queries, keys, triton.next_power_of_2(sequences)
        # As e4m3, not as bytes: a tile whose type is changed in the kernel goes through registers.
        codes = (x.view(torch.float8_e4m3fn) for x in (q_nope, q_rope, k, v))
        operands = *codes, query_starts.contiguous(), *scales, out, lse
        _own_rows[grid](
            *operands, *strides, sequences, heads, softmax_scale, *sizes, num_warps=warps, num_stages=stages
        )
    return out, lse
