"""Page tables on the device."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def page_of(table, position, stride, width, mask, S: tl.constexpr):
    """Page ids of positions in the row of a page table that ``table`` points to; -1 where none is held or asked for."""
    index = position // S
    inside = mask & (position >= 0) & (index < width)
    return tl.load(table + index * stride, mask=inside, other=-1)
