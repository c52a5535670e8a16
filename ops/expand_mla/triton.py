"""kvc::expand_mla in Triton: products of the latent in one library call each, then a launch that rounds and places."""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

from kvc.ops import transposed
from kvc.ops.codecs.fp8 import triton as fp8
from kvc.ops.device.context import tile_of

TILE = 32  # tokens of a program


@triton.jit
def _place_k(
    k_nope,
    rope,
    k_scale,
    k,
    nope_token,
    nope_head,
    rope_token,
    N: tl.constexpr,
    R: tl.constexpr,
    N_PADDED: tl.constexpr,
    R_PADDED: tl.constexpr,
    tokens,
    heads,
    CODES: tl.constexpr,
    M: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    token, head = row // heads, row % heads
    mask = (token < tokens)[:, None]
    left, right = tl.arange(0, N_PADDED), tl.arange(0, R_PADDED)
    nope = tl.load(k_nope + (token * nope_token + head * nope_head)[:, None] + left, mask=mask & (left < N), other=0)
    turned = tl.load(rope + (token * rope_token)[:, None] + right, mask=mask & (right < R), other=0)
    if CODES:
        factor = tl.load(k_scale + 1)
        nope, turned = fp8.encode(nope.to(tl.float32), factor), fp8.encode(turned.to(tl.float32), factor)
    tl.store(k + row[:, None] * (N + R) + left, nope, mask=mask & (left < N))
    tl.store(k + row[:, None] * (N + R) + N + right, turned, mask=mask & (right < R))


@triton.jit
def _turn_v(
    v,
    query_starts,
    v_scale,
    out,
    v_token,
    v_head,
    out_head,
    out_row,
    sequences,
    V: tl.constexpr,
    V_PADDED: tl.constexpr,
    CODES: tl.constexpr,
    M: tl.constexpr,
    SEQUENCES: tl.constexpr,
):
    sequence, start, count, tile = tile_of(tl.program_id(0), query_starts, sequences, M, SEQUENCES)
    if sequence >= sequences:
        return
    index = tl.arange(0, SEQUENCES)
    before = index < sequence
    begins = tl.load(query_starts + index, mask=before, other=0)
    ends = tl.load(query_starts + index + 1, mask=before, other=0)
    first = tl.sum((ends - begins + 15) // 16, 0) * 16  # a multiple of 16 that the compiler sees
    place, feature = tile * M + tl.arange(0, M), tl.arange(0, V_PADDED)
    head = tl.program_id(1).to(tl.int64)
    start_of = (start + place).to(tl.int64) * v_token + head * v_head
    inside = (place < count)[:, None] & (feature < V)[None, :]
    x = tl.load(v + start_of[:, None] + feature[None, :], mask=inside, other=0)
    if CODES:
        x = fp8.encode(x.to(tl.float32), tl.load(v_scale + 1))
    into = head * out_head + feature.to(tl.int64)[:, None] * out_row + (first + place)[None, :]
    tl.store(out + into, tl.trans(x), mask=(feature < V)[:, None] & (place < count)[None, :])


def expand_mla(
    latent: torch.Tensor,
    rope: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    query_starts: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    *,
    v_layout: str = "rows",
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference; sums of products are the library's, in fp32."""
    k_nope, v = (_of_heads(latent, w) for w in (w_uk.transpose(1, 2), w_uv))
    k = _join(k_nope, rope, k_scale)
    if query_starts is None:
        return k, v if v_scale is None else _encoded(v, v_scale)
    return k, _turned(v, query_starts, v_scale)


def _of_heads(latent: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """latent [T, 1, C] by w [H, C, X] -> [T, H, X], one product for all heads."""
    heads, width, out = w.shape
    flat = w.transpose(0, 1).reshape(width, heads * out)
    return (latent[:, 0] @ flat).unflatten(-1, (heads, out))


def _join(nope: torch.Tensor, rope: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    (tokens, heads, n), r = nope.shape, rope.shape[2]
    rope = rope if rope.stride(2) == 1 or r == 1 else rope.contiguous()
    k = nope.new_empty((tokens, heads, n + r), dtype=nope.dtype if scale is None else torch.uint8)
    if tokens:
        sizes = n, r, triton.next_power_of_2(n), triton.next_power_of_2(r), tokens, heads
        grid = (triton.cdiv(tokens * heads, TILE),)
        strides = (*nope.stride()[:2], rope.stride(0))
        _place_k[grid](nope, rope, scale, k, *strides, *sizes, scale is not None, TILE, enable_fp_fusion=False)
    return k


def _encoded(v: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    from kvc.ops.codecs import CODECS
    from kvc.ops.device.encode import encode

    return encode(v, CODECS["fp8"], scale)[1][0]


def _turned(v: torch.Tensor, query_starts: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    (tokens, heads, width), sequences = v.shape, query_starts.shape[0] - 1
    like = v if scale is None else v.new_empty(0, dtype=torch.uint8)
    out = transposed.empty(like, heads, width, transposed.columns(tokens, sequences)).zero_()
    if tokens and sequences:
        grid = triton.cdiv(tokens, TILE) + sequences, heads
        sizes = width, triton.next_power_of_2(width), scale is not None, TILE, triton.next_power_of_2(sequences)
        strides = (*v.stride()[:2], *out.stride()[:2], sequences)
        _turn_v[grid](v, query_starts.contiguous(), scale, out, *strides, *sizes, enable_fp_fusion=False)
    return out
