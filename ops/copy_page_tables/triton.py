"""kvc::copy_page_tables in Triton: every block of every row in a program of its own, all pools at once."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

BLOCK = 1024  # entries of a row a program handles: a long row is split over many thread blocks


@triton.jit
def _copy(
    slots,
    pages,
    stride_g,
    stride_b,
    sequences,
    width,
    LIFECYCLES: tl.constexpr,
    PAGES_PER_SLOT: tl.constexpr,
    OFFSETS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    entry = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = entry < width
    for pool in tl.static_range(len(LIFECYCLES)):
        slot = tl.load(slots + LIFECYCLES[pool] * stride_g + row * stride_b + entry, mask=inside)
        page = tl.where(slot < 0, slot, slot * PAGES_PER_SLOT[pool] + OFFSETS[pool])
        tl.store(pages + (pool * sequences + row) * width + entry, page, mask=inside)


def copy_page_tables(
    slot_tables: torch.Tensor, *, lifecycles: Sequence[int], pages_per_slot: Sequence[int], offsets: Sequence[int]
) -> torch.Tensor:
    """As the reference; the lists are constants of the compiled kernel, they are those of a plan."""
    return copied(slot_tables, lifecycles, pages_per_slot, offsets, BLOCK)


def copied(
    slot_tables: torch.Tensor,
    lifecycles: Sequence[int],
    pages_per_slot: Sequence[int],
    offsets: Sequence[int],
    block: int,
) -> torch.Tensor:
    """The same with ``block`` entries a program, a power of two."""
    _, sequences, width = slot_tables.shape
    slot_tables = slot_tables if slot_tables.stride(2) == 1 else slot_tables.contiguous()
    pages = slot_tables.new_empty((len(lifecycles), sequences, width))
    if pages.numel():
        _copy[(sequences * triton.cdiv(width, block),)](
            slot_tables,
            pages,
            slot_tables.stride(0),
            slot_tables.stride(1),
            sequences,
            width,
            tuple(lifecycles),
            tuple(pages_per_slot),
            tuple(offsets),
            block,
            num_warps=4,
        )
    return pages
