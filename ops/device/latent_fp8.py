"""Attention over fp8 latent pages of 64 tokens of 512 + 64 on Hopper: tokens on the rows, bytes as stored.

A program holds N query rows of a sequence (query tokens times heads) and reads its pages, of 64 tokens, one by one
through TMA. Per page:

- S^T = K Q^T on the fp8 bytes. A query of 8 significant bits is, under a power of two a row, the sum of two e4m3
  numbers; both stand side by side along N. Its sums keep about 14 bits, more than scores in bf16 have.
- O^T += V^T P^T in fp16. V^T comes from shared memory through transposing loads of pairs of features; the bytes of one
  feature of two tokens are brought together and converted in registers, which are the operand: even and odd features
  are two products.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

_LOG2_E = gl.constexpr(1.4426950408889634)
_LN_2 = gl.constexpr(0.6931471805599453)
_TILE = gl.constexpr(64)  # tokens of a page
_PAIRS = gl.constexpr(256)
_LATENT = gl.constexpr(512)
_ROPE = gl.constexpr(64)

# Two tokens of a pair of features -> the even feature of both, and the odd one, in fp16.
_UNPACK = gl.constexpr("""{
.reg .b32 t; .reg .b16 lo, hi;
prmt.b32 t, $2, 0, 0x3120;
mov.b32 {lo, hi}, t;
cvt.rn.f16x2.e4m3x2 $0, lo;
cvt.rn.f16x2.e4m3x2 $1, hi;
}""")


@gluon.jit
def _exponent(x):
    """The biased exponent of positive numbers."""
    return x.to(gl.int32, bitcast=True) >> 23


@gluon.jit
def _power(biased):
    """Two to the power of a biased exponent."""
    return (biased << 23).to(gl.float32, bitcast=True)


@gluon.jit
def _queries(q, token, row, rows, stride_t, stride_h, HEADS: gl.constexpr, WIDTH: gl.constexpr, layout: gl.constexpr):
    """fp32 [rows, WIDTH] of query rows, 0 behind the last, and the largest of each row."""
    feature = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    place = (token + row // HEADS).to(gl.int64) * stride_t + (row % HEADS) * stride_h
    x = gl.load(q + place[:, None] + feature[None, :], mask=(row < rows)[:, None], other=0.0).to(gl.float32)
    return x, gl.max(gl.abs(x), axis=1)


@gluon.jit
def _put_halves(x, up, high_half, low_half):
    """Scaled queries as the sum of two e4m3 numbers: exact for 8 significant bits, down to 2^-17 of the largest."""
    x = x * up[:, None]
    high = x.to(gl.float8e4nv)
    high_half.store(high)
    low_half.store((x - high.to(gl.float32)).to(gl.float8e4nv))


@gluon.jit
def _sum_of_halves(both, N: gl.constexpr, layout: gl.constexpr):
    """[64, 2 N] -> [64, N]: each warp group has both halves of its columns side by side."""
    apart = both.reshape([_TILE, 2, N]).permute([0, 2, 1])
    high, low = gl.split(apart)
    return gl.convert_layout(high + low, layout)


@gluon.jit
def _scores(k_wide, k_narrow, q_wide, q_narrow, ratio, zero, SAME: gl.constexpr):
    """K Q^T [64, 2 N] under the latent's scale; one sum where the rope has the same."""
    a = warpgroup_mma(k_narrow, q_narrow.permute((1, 0)), zero, use_acc=False, is_async=True)
    if SAME:
        a = warpgroup_mma(k_wide, q_wide.permute((1, 0)), a, is_async=True)
        return warpgroup_mma_wait(0, deps=(a,))
    b = warpgroup_mma(k_wide, q_wide.permute((1, 0)), zero, use_acc=False, is_async=True)
    a, b = warpgroup_mma_wait(0, deps=(a, b))
    return a * ratio + b


@gluon.constexpr_function
def _columns_layout(N):
    """Four rows in every thread, the columns as the accumulator of a product has them."""
    columns = [[0, 1], *([0, 8 << i] for i in range((N // 8).bit_length() - 1))]
    lanes = [[0, 2], [0, 4], [0, 0], [0, 0], [0, 0]]
    return gl.DistributedLinearLayout([[1, 0], [2, 0], *columns], lanes, [[0, 0], [0, 0]], [], [4, N])


@gluon.jit
def _largest(s, buffer, N: gl.constexpr, column: gl.constexpr):
    """The largest of every column of scores [64, N]: of each warp's 16 rows first, then of the four warps."""
    buffer.store(gl.max(s.reshape([4, 16, N]), axis=1))
    return gl.convert_layout(gl.max(buffer.load(_columns_layout(N)), axis=0), column)


@gluon.jit
def _clear_behind(tile, left, pairs: gl.constexpr, layout: gl.constexpr):
    """Zeros in the latent rows of a tile from row ``left`` on."""
    codes = tile._reinterpret(gl.int16, [_TILE, _PAIRS], pairs)
    kept = gl.arange(0, _TILE, layout=gl.SliceLayout(1, layout)) < left
    codes.store(gl.where(kept[:, None], codes.load(layout), 0))
    fence_async_shared()


@gluon.jit
def _unpacked(values, step: gl.constexpr, STEP: gl.constexpr, layout: gl.constexpr):
    """The even and the odd features of STEP tokens, fp16 [256, STEP] each, as the first operand of a product."""
    codes = values.slice(step * STEP, STEP).permute((1, 0)).load(layout)
    return gl.inline_asm_elementwise(_UNPACK, "=r,=r,r", [codes], dtype=(gl.float16, gl.float16), is_pure=True, pack=2)


@gluon.jit
def _copy_page(latent, rope, page, latent_rows, rope_rows, rope_first, bar, k_latent, k_rope, held):
    """Start reading a page; one that is not held lies outside of the descriptors, which gives zeros."""
    mbarrier.expect(bar, 64 * 576, pred=held)
    tma.async_copy_global_to_shared(latent, [page * latent_rows, 0], bar, k_latent, pred=held)
    tma.async_copy_global_to_shared(rope, [page * rope_rows + rope_first, 0], bar, k_rope, pred=held)


@gluon.jit(do_not_specialize=["table_stride", "width", "sequences", "splits", "rope_first"])
def attend_latent_fp8(
    q_latent,
    q_rope,
    latent,
    rope,
    table,
    lengths,
    latent_scale,
    rope_scale,
    parts,
    part_lse,
    q_stride_t,
    q_stride_h,
    r_stride_t,
    r_stride_h,
    table_stride,
    width,
    latent_rows,
    rope_rows,
    rope_first,
    sequences,
    splits,
    softmax_scale,
    QUERIES: gl.constexpr,
    HEADS: gl.constexpr,
    N: gl.constexpr,
    STAGES: gl.constexpr,
    STEP: gl.constexpr,
    SAME: gl.constexpr,
):
    """One block of query rows over one split of a sequence, as described above."""
    BOTH: gl.constexpr = 2 * N
    ROWS: gl.constexpr = QUERIES * HEADS
    both_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BOTH, 32])
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 32])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    v_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    column: gl.constexpr = gl.SliceLayout(0, s_layout)
    o_column: gl.constexpr = gl.SliceLayout(0, o_layout)
    q_layout: gl.constexpr = gl.BlockedLayout([1, 16], [1, 32], [4, 1], [1, 0])
    r_layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    tail_layout: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0])
    wide: gl.constexpr = gl.NVMMASharedLayout(128, 8, 2)
    narrow: gl.constexpr = gl.NVMMASharedLayout(64, 8, 2)
    pairs: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    p_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([_TILE, N], gl.float16)

    # Blocks of one sequence run side by side: they read the same pages.
    blocks = (ROWS + N - 1) // N
    block = gl.program_id(0) % blocks * N
    sequence = gl.program_id(0) // blocks % sequences
    split = gl.program_id(0) // blocks // sequences
    length = gl.minimum(gl.load(lengths + sequence), width * _TILE)
    per = (length + splits * _TILE - 1) // (splits * _TILE)  # pages of a split
    first = split * per
    count = gl.maximum(gl.minimum((length + _TILE - 1) // _TILE - first, per), 0)
    pages = table + sequence.to(gl.int64) * table_stride + first

    k_latent = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, _TILE, _LATENT], wide)
    k_rope = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, _TILE, _ROPE], narrow)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
    fence_async_shared()
    for stage in gl.static_range(STAGES):
        held = stage < count
        page = gl.load(pages + stage, mask=held, other=-1)
        _copy_page(
            latent, rope, page, latent_rows, rope_rows, rope_first, ready.index(stage), k_latent.index(stage),
            k_rope.index(stage), held,
        )  # fmt: skip

    # Row r of the block is query token r // HEADS of the sequence.
    q_wide = gl.allocate_shared_memory(gl.float8e4nv, [BOTH, _LATENT], wide)
    q_narrow = gl.allocate_shared_memory(gl.float8e4nv, [BOTH, _ROPE], narrow)
    p_buffer = gl.allocate_shared_memory(gl.float16, [_TILE, N], p_shared)
    factors = gl.allocate_shared_memory(gl.float32, [N], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    most_buffer = gl.allocate_shared_memory(gl.float32, [4, N], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    token = sequence * QUERIES
    # A power of two brings the largest of a row, rope under its scale and latent under its own, into [128, 256).
    l_scale, r_scale = gl.load(latent_scale), gl.load(rope_scale)
    apart = _power(gl.minimum(gl.maximum(127 + _exponent(r_scale) - _exponent(l_scale), 1), 254))
    ratio = r_scale / l_scale / apart
    row = block + gl.arange(0, N, layout=gl.SliceLayout(1, q_layout))
    q, most_q = _queries(q_latent, token, row, ROWS, q_stride_t, q_stride_h, HEADS, _LATENT, q_layout)
    row = block + gl.arange(0, N, layout=gl.SliceLayout(1, r_layout))
    r, most_r = _queries(q_rope, token, row, ROWS, r_stride_t, r_stride_h, HEADS, _ROPE, r_layout)
    largest = gl.maximum(most_q, gl.convert_layout(most_r * apart, most_q.type.layout))
    biased = gl.maximum(_exponent(largest), 8)
    up = gl.where(biased == 255, float("nan"), _power(261 - biased))
    down = _power(biased - 7) * (l_scale * softmax_scale * _LOG2_E)
    _put_halves(q, up, q_wide.slice(0, N), q_wide.slice(N, N))
    up = gl.convert_layout(up, most_r.type.layout) * apart
    _put_halves(r, up, q_narrow.slice(0, N), q_narrow.slice(N, N))
    factors.store(down)
    factor = factors.load(column)
    fence_async_shared()

    # Tokens of the split that a query sees; the same for all rows where there is one query token.
    visible = length - first * _TILE
    if QUERIES > 1:
        row = block + gl.arange(0, N, layout=column)
        visible = (visible - QUERIES + 1 + row // HEADS)[None, :]
    place = gl.arange(0, _TILE, layout=gl.SliceLayout(1, s_layout))
    most = gl.full([N], float("-inf"), gl.float32, layout=column)
    total = gl.full([_TILE, N], 0.0, gl.float32, layout=s_layout)
    even = gl.full([_PAIRS, N], 0.0, gl.float32, layout=o_layout)
    odd = gl.full([_PAIRS, N], 0.0, gl.float32, layout=o_layout)

    zero = gl.full([_TILE, BOTH], 0.0, gl.float32, layout=both_layout)
    for i in range(count):
        slot = i % STAGES
        here = gl.load(pages + i) >= 0
        follows = i + STAGES < count
        upcoming = gl.load(pages + i + STAGES, mask=follows, other=-1)
        k_wide = k_latent.index(slot)
        k_narrow = k_rope.index(slot)
        mbarrier.wait(ready.index(slot), (i // STAGES) & 1)
        left = length - (first + i) * _TILE
        if left < _TILE:  # what follows the last row may be NaN, which no weight hides
            _clear_behind(k_wide, left, pairs, tail_layout)

        both = _scores(k_wide, k_narrow, q_wide, q_narrow, ratio, zero, SAME)
        s = _sum_of_halves(both, N, s_layout) * factor[None, :]
        seen = (i * _TILE + place[:, None] < visible) & here
        s = gl.where(seen, s, float("-inf"))
        highest = gl.maximum(most, _largest(s, most_buffer, N, column))
        base = gl.where(highest == float("-inf"), 0.0, highest)
        alpha = gl.exp2(most - base)
        p = gl.exp2(s - base[None, :])
        total = total * alpha[None, :] + p
        most = highest
        p_buffer.store(p.to(gl.float16))
        fence_async_shared()
        shrink = gl.convert_layout(alpha, o_column)[None, :]
        even = even * shrink
        odd = odd * shrink
        values = k_wide._reinterpret(gl.int16, [_TILE, _PAIRS], pairs)
        v_even, v_odd = _unpacked(values, 0, STEP, v_layout)
        even = warpgroup_mma(v_even, p_buffer.slice(0, STEP), even, is_async=True)
        odd = warpgroup_mma(v_odd, p_buffer.slice(0, STEP), odd, is_async=True)
        for step in gl.static_range(1, _TILE // STEP):
            next_even, next_odd = _unpacked(values, step, STEP, v_layout)  # while the product before runs
            even = warpgroup_mma(next_even, p_buffer.slice(step * STEP, STEP), even, is_async=True)
            odd = warpgroup_mma(next_odd, p_buffer.slice(step * STEP, STEP), odd, is_async=True)
            even, odd, v_even, v_odd = warpgroup_mma_wait(2, deps=(even, odd, v_even, v_odd))
            v_even, v_odd = next_even, next_odd
        even, odd, v_even, v_odd = warpgroup_mma_wait(0, deps=(even, odd, v_even, v_odd))
        gl.thread_barrier()
        _copy_page(
            latent, rope, upcoming, latent_rows, rope_rows, rope_first, ready.index(slot), k_wide, k_narrow, follows
        )

    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(ready.index(stage))
    empty = most == float("-inf")
    total = gl.where(empty, 1.0, gl.sum(total, axis=0))
    row = block + gl.arange(0, N, layout=column)
    target = (split * sequences * QUERIES + token).to(gl.int64) * HEADS
    lse = gl.where(empty, float("-inf"), (most + gl.log2(total)) * _LN_2)
    gl.store(part_lse + target + row, lse, mask=row < ROWS)
    share = gl.convert_layout(gl.where(empty, 0.0, l_scale / total), o_column)[None, :]
    even = even * share
    odd = odd * share
    row = block + gl.arange(0, N, layout=o_column)
    pair = gl.arange(0, _PAIRS, layout=gl.SliceLayout(1, o_layout))
    out = parts + (target + row)[None, :] * _LATENT + 2 * pair[:, None]
    gl.store(out, even.to(parts.dtype.element_ty), mask=(row < ROWS)[None, :])
    gl.store(out + 1, odd.to(parts.dtype.element_ty), mask=(row < ROWS)[None, :])
