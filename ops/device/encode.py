"""Rows encoded to planes of their own, rotated before or not, and planes decoded to values."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kvc.ops.codecs.table import Codec
from kvc.ops.device.numbers import rounded
from kvc.ops.device.rotation import rotated_rows
from kvc.ops.device.rows import LEAST_WIDTH, load_field, store_field

TILE = 2048  # elements of a program's tile


@triton.jit
def _encode(
    x,
    turned,
    codes,
    sizes,
    scale,
    table,
    positions,
    token_stride,
    head_stride,
    table_stride,
    rows,
    heads,
    CODEC: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    DATA_BYTES: tl.constexpr,
    SCALE_BYTES: tl.constexpr,
    R: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mask = row < rows
    token, head = row // heads, row % heads
    position = tl.zeros([ROWS], tl.int32)
    if R > 0:
        position = tl.load(positions + token, mask=mask, other=0)
    start = token * token_stride + head * head_stride
    values = rotated_rows(x, start, mask, table, position, table_stride, R, DIM, PADDED, LAYOUT)
    if R > 0:
        column = tl.arange(0, PADDED)
        inside = mask[:, None] & (column < DIM)[None, :]
        tl.store(turned + row[:, None] * DIM + column[None, :], values, mask=inside)
    if CODEC != "":
        store_field(codes, row * DATA_BYTES, sizes, row * SCALE_BYTES, values, mask, scale, CODEC, DIM)


def encode(
    x: torch.Tensor,
    codec: Codec | None,
    scale: torch.Tensor | None,
    table: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    layout: str = "",
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """x [T, H, D] rotated, if there is a table, and its planes uint8 [T, H, row bytes], if there is a codec."""
    x = x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()
    tokens, heads, dim = x.shape
    sizes = [part.row_bytes(dim) for part in codec.parts] if codec else []
    planes = [x.new_empty((tokens, heads, size), dtype=torch.uint8) for size in sizes]
    turned = None if table is None else x.new_empty(x.shape)
    padded = triton.next_power_of_2(max(1, dim, LEAST_WIDTH.get(codec.name, 1) if codec else 1))
    rows = max(1, TILE // padded)
    if tokens * heads:
        _encode[(triton.cdiv(tokens * heads, rows),)](
            x,
            turned,
            planes[0] if planes else None,
            planes[-1] if planes else None,
            scale,
            table,
            positions,
            x.stride(0),
            x.stride(1),
            table.stride(0) if table is not None else 0,
            tokens * heads,
            heads,
            codec.name if codec else "",
            dim,
            padded,
            sizes[0] if sizes else 0,
            sizes[-1] if sizes else 0,
            table.shape[1] if table is not None else 0,
            layout,
            rows,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return turned, planes


@triton.jit
def _decode(
    codes,
    sizes,
    scale,
    out,
    rows,
    CODEC: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    DATA_BYTES: tl.constexpr,
    SCALE_BYTES: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mask = row < rows
    values = load_field(codes, row * DATA_BYTES, sizes, row * SCALE_BYTES, mask, scale, CODEC, DIM, PADDED)
    column = tl.arange(0, PADDED)
    inside = mask[:, None] & (column < DIM)[None, :]
    tl.store(out + row[:, None] * DIM + column[None, :], rounded(values, out.dtype.element_ty), mask=inside)


def decode(
    planes: Sequence[torch.Tensor], codec: Codec, scale: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """Values [..., dim] of planes uint8 [..., row bytes]."""
    planes = [plane.contiguous() for plane in planes]
    data = codec.parts[0]
    dim = planes[0].shape[-1] * 8 * data.group // data.bits
    out = planes[0].new_empty((*planes[0].shape[:-1], dim), dtype=dtype)
    padded = triton.next_power_of_2(max(1, dim, LEAST_WIDTH.get(codec.name, 1)))
    count = max(1, TILE // padded)
    if out.numel():
        rows = out.numel() // dim
        _decode[(triton.cdiv(rows, count),)](
            planes[0],
            planes[-1],
            scale,
            out,
            rows,
            codec.name,
            dim,
            padded,
            planes[0].shape[-1],
            planes[-1].shape[-1],
            count,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return out
