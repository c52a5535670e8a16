"""kvc::store_rows in Triton, a launch for each plane."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kvc.ops.device.rows import row_offset
from kvc.ops.paging import raw_layout

TILE = 4096  # bytes of a program


@triton.jit
def _store(
    pool,
    plane,
    rows,
    pool_stride,
    token_stride,
    head_stride,
    byte_stride,
    tokens,
    HEADS: tl.constexpr,
    BYTES: tl.constexpr,
    PADDED: tl.constexpr,
    OFFSET: tl.constexpr,
    S: tl.constexpr,
    ROWS: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, head = index // HEADS, index % HEADS
    row = tl.load(rows + token, mask=token < tokens, other=-1)
    column = tl.arange(0, PADDED)
    mask = (row >= 0)[:, None] & (column < BYTES)[None, :]
    start = token * token_stride + head * head_stride
    values = tl.load(plane + start[:, None] + column[None, :] * byte_stride, mask=mask)
    into = row_offset(row // S, row % S, head, pool_stride, OFFSET, BYTES, S)
    tl.store(pool + into[:, None] + column[None, :], values, mask=mask)


def store_rows(pool: torch.Tensor, planes: Sequence[torch.Tensor], rows: torch.Tensor, *, tokens_per_page: int) -> None:
    """As the reference."""
    shapes = tuple((plane.shape[1], plane.shape[2]) for plane in planes)
    rows = rows.contiguous()
    for plane, place in zip(planes, raw_layout(shapes, tokens_per_page).planes, strict=True):
        tokens, heads, size = plane.shape
        padded = triton.next_power_of_2(max(1, size))
        count = max(1, TILE // padded)
        if plane.numel():
            _store[(triton.cdiv(tokens * heads, count),)](
                pool,
                plane,
                rows,
                pool.stride(0),
                *plane.stride(),
                tokens,
                heads,
                size,
                padded,
                place.offset,
                tokens_per_page,
                count,
                num_warps=4,
            )
