"""kvc::place_own_rows in Triton: a copy of the gathered rows, then a launch a field over the step's tokens."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kvc.ops.codecs.fp8 import triton as fp8

TILE = 2048  # elements of a program's tile


@triton.jit
def _place(
    own,
    out,
    positions,
    sequences,
    code_scale,
    token_stride,
    head_stride,
    feature_stride,
    out_stride,
    out_row,
    out_head,
    tokens,
    batch,
    length,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    CODES: tl.constexpr,
    ROWS: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, head = index // HEADS, index % HEADS
    sequence = tl.load(sequences + token, mask=token < tokens, other=-1).to(tl.int64)
    position = tl.load(positions + token, mask=token < tokens, other=0).to(tl.int64)
    known = (sequence >= 0) & (sequence < batch) & (position >= 0) & (position < length)
    column = tl.arange(0, PADDED)
    mask = known[:, None] & (column < DIM)[None, :]
    start = token * token_stride + head * head_stride
    value = tl.load(own + start[:, None] + column[None, :] * feature_stride, mask=mask, other=0)
    if CODES:
        result = fp8.encode(value.to(tl.float32), tl.load(code_scale + 1))
    else:
        result = value
    into = sequence * out_stride + position * out_row + head * out_head
    tl.store(out + into[:, None] + column[None, :], result, mask=mask)


def place_own_rows(
    rows: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor],
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    code_scale: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """As the reference."""
    positions, sequence_ids = positions.contiguous(), sequence_ids.contiguous()
    return [_placed(x, values, positions, sequence_ids, code_scale) for x, values in zip(rows, own, strict=True)]


def _placed(x, own, positions, sequence_ids, code_scale):
    out = x.clone(memory_format=torch.contiguous_format)
    tokens, heads, dim = own.shape
    padded = triton.next_power_of_2(max(1, dim))
    count = max(1, TILE // padded)
    if own.numel():
        _place[(triton.cdiv(tokens * heads, count),)](
            own,
            out,
            positions,
            sequence_ids,
            code_scale,
            *own.stride(),
            *out.stride()[:3],
            tokens,
            *out.shape[:2],
            heads,
            dim,
            padded,
            code_scale is not None,
            count,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return out
