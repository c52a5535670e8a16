"""A field of cached rows as tiles: encoded and stored, loaded and decoded, whatever its codec.

A field lies in a page as `FieldPlace` says, made on the host from a `RowFormat`; kernels take its numbers as constants:
``CODEC`` the codec's name, ``DIM`` its features, ``PADDED`` their number as a power of two. ``data`` and ``scales`` are
the offsets of a row's first byte of each, int64 ``[rows]``, in the memory that ``codes`` and ``sizes`` point to: a pool
both, or a tensor each. `row_offset` makes one from a page and a token. Pages and planes start at multiples of 16 bytes.
"""

# mypy: ignore-errors
from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl

from kvc.encodings import Field, PageLayout
from kvc.ops.axes import wrong
from kvc.ops.codecs import RowFormat, row_format
from kvc.ops.codecs.fp8 import triton as fp8
from kvc.ops.codecs.fp8_block import triton as fp8_block
from kvc.ops.codecs.nvfp4 import triton as nvfp4
from kvc.ops.codecs.nvfp4_residual import triton as nvfp4_residual
from kvc.ops.device.numbers import rounded

ALIGNMENT = 16


@dataclass(frozen=True)
class FieldPlace:
    """Where a page holds a field: token ``t`` of head ``h`` starts at ``data + (h * S + t) * data_bytes``.

    The same of its block scales; a codec without them has ``scales`` 0.
    """

    codec: str
    heads: int
    dim: int
    data: int
    data_bytes: int
    scales: int = 0
    scale_bytes: int = 0

    @property
    def padded(self) -> int:
        """The number of features as a power of two that holds a whole block of any codec."""
        return triton.next_power_of_2(max(self.dim, LEAST_WIDTH.get(self.codec, 1)))

    @property
    def constants(self) -> tuple[str, int, int, int, int, int, int]:
        """What a kernel takes: codec, dim, padded, then offset and row bytes of data and of scales."""
        return self.codec, self.dim, self.padded, self.data, self.data_bytes, self.scales, self.scale_bytes


LEAST_WIDTH = {"nvfp4": 16, "nvfp4_residual": 16, "fp8_block": 128}


@lru_cache(maxsize=256)
def field_places(op: str, encoding: str, fields: tuple[Field, ...], tokens_per_page: int) -> tuple[FieldPlace, ...]:
    """The place of every field of a row in a page."""
    row = row_format(op, encoding, fields)
    layout = row.layout(tokens_per_page)
    parts = [_parts(row, layout, index) for index in range(len(fields))]
    return tuple(
        FieldPlace(codec.name, field.heads, field.dim, *(number for part in found for number in part))
        for codec, field, found in zip(row.codecs, fields, parts, strict=True)
    )


def _parts(row: RowFormat, layout: PageLayout, index: int) -> list[tuple[int, int]]:
    """Offset of the first row and bytes from row to row, for each part of a field's codec."""
    found: dict[int, tuple[int, int]] = {}
    for plane, parts in zip(layout.planes, row.planes, strict=True):
        column = 0
        for field, part in parts:
            if field == index:
                found[part] = plane.offset + column, plane.row_bytes
            column += row.codecs[field].parts[part].row_bytes(row.fields[field].dim)
    return [found[part] for part in sorted(found)]


def check_aligned(op: str, **pools: torch.Tensor | None) -> None:
    """Raise KVC551 unless every page of the pools starts at a multiple of 16 bytes."""
    for name, pool in pools.items():
        if pool is not None and (pool.data_ptr() | pool.stride(0)) % ALIGNMENT:
            raise wrong(op, name, f"has pages that start at no multiple of {ALIGNMENT} bytes")


@triton.jit
def row_offset(page, token, head, stride, OFFSET: tl.constexpr, ROW_BYTES: tl.constexpr, S: tl.constexpr):
    """The first byte of rows in a pool whose pages are ``stride`` bytes apart, int64."""
    return page.to(tl.int64) * stride + OFFSET + (head * S + token) * ROW_BYTES


@triton.jit
def store_field(codes, data, sizes, scales, x, mask, scale, CODEC: tl.constexpr, DIM: tl.constexpr):
    """Encode ``x [rows, PADDED]`` of an activation dtype under ``scale`` (pointer to f32 [2]) and store it."""
    if CODEC == "fp32":
        _store(codes.to(tl.pointer_type(tl.float32)), data // 4, x.to(tl.float32), mask, DIM)
    elif CODEC == "bf16":
        if x.dtype == tl.bfloat16:
            _store(codes.to(tl.pointer_type(tl.bfloat16)), data // 2, x, mask, DIM)
        else:
            high = rounded(x.to(tl.float32), tl.bfloat16)
            _store(codes.to(tl.pointer_type(tl.bfloat16)), data // 2, high, mask, DIM)
    elif CODEC == "fp8":
        if x.dtype == tl.uint8:
            _store(codes, data, x, mask, DIM)
        else:
            _store(codes, data, fp8.encode(x.to(tl.float32), tl.load(scale + 1)), mask, DIM)
    elif CODEC == "fp8_block":
        data_tile, scale_tile = fp8_block.encode(x.to(tl.float32))
        _store(codes, data, data_tile, mask, DIM)
        _store(sizes.to(tl.pointer_type(tl.float32)), scales // 4, scale_tile, mask, DIM // 128)
    elif CODEC == "nvfp4":
        data_tile, scale_tile = nvfp4.encode(x.to(tl.float32), tl.load(scale), tl.load(scale + 1))
        _store(codes, data, data_tile, mask, DIM // 2)
        _store(sizes, scales, scale_tile, mask, DIM // 16)
    else:
        tl.static_assert(CODEC == "nvfp4_residual", "a codec that kernels do not know")
        data_tile, scale_tile = nvfp4_residual.encode(x.to(tl.float32), tl.load(scale), tl.load(scale + 1))
        _store(codes, data, data_tile, mask, DIM)
        _store(sizes, scales, scale_tile, mask, DIM // 8)


@triton.jit
def load_field(codes, data, sizes, scales, mask, scale, CODEC: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Load and decode rows: fp32 ``[rows, PADDED]``, 0 where ``mask [rows]`` is not set and past ``DIM``."""
    if CODEC == "fp32":
        return _load(codes.to(tl.pointer_type(tl.float32)), data // 4, mask, DIM, PADDED)
    elif CODEC == "bf16":
        return _load(codes.to(tl.pointer_type(tl.bfloat16)), data // 2, mask, DIM, PADDED).to(tl.float32)
    elif CODEC == "fp8":
        return fp8.decode(_load(codes, data, mask, DIM, PADDED), tl.load(scale))
    elif CODEC == "fp8_block":
        scale_tile = _load(sizes.to(tl.pointer_type(tl.float32)), scales // 4, mask, DIM // 128, PADDED // 128)
        return fp8_block.decode(_load(codes, data, mask, DIM, PADDED), scale_tile)
    elif CODEC == "nvfp4":
        data_tile = _load(codes, data, mask, DIM // 2, PADDED // 2)
        return nvfp4.decode(data_tile, _load(sizes, scales, mask, DIM // 16, PADDED // 16), tl.load(scale))
    else:
        tl.static_assert(CODEC == "nvfp4_residual", "a codec that kernels do not know")
        data_tile = _load(codes, data, mask, DIM, PADDED)
        return nvfp4_residual.decode(data_tile, _load(sizes, scales, mask, DIM // 8, PADDED // 8), tl.load(scale))


@triton.jit
def _store(pointer, start, x, mask, WIDTH: tl.constexpr):
    column = tl.arange(0, x.shape[1])
    tl.store(pointer + start[:, None] + column[None, :], x, mask=mask[:, None] & (column < WIDTH)[None, :])


@triton.jit
def _load(pointer, start, mask, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    column = tl.arange(0, PADDED)
    return tl.load(pointer + start[:, None] + column[None, :], mask=mask[:, None] & (column < WIDTH)[None, :], other=0)
