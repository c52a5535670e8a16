"""RoPE on tiles, every product and the sum rounded on their own: launch with ``enable_fp_fusion=False``."""

# mypy: ignore-errors
import triton
import triton.language as tl

from kvc.ops.device.numbers import rounded


@triton.jit
def rotated_rows(
    x,
    start,
    mask,
    table,
    position,
    table_stride,
    R: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Rows ``[rows, PADDED]`` of an activation dtype, the first R features rotated by ``table[position]``.

    ``start [rows]``: offset of a row in ``x``; R 0: the rows as they are.
    """
    column = tl.arange(0, PADDED)[None, :]
    inside = mask[:, None] & (column < DIM)
    own = tl.load(x + start[:, None] + column, mask=inside, other=0)
    if R == 0:
        return own
    else:
        if LAYOUT == "half":
            first = column < R // 2
            partner, pair = tl.where(first, column + R // 2, column - R // 2), column % (R // 2)
        else:
            first = column % 2 == 0
            partner, pair = column ^ 1, column // 2
        turned = inside & (column < R)
        other = tl.load(x + start[:, None] + partner, mask=turned, other=0).to(tl.float32)
        angle = table + position.to(tl.int64)[:, None] * table_stride + pair
        cos, sin = tl.load(angle, mask=turned, other=1.0), tl.load(angle + R // 2, mask=turned, other=0.0)
        product = other * sin
        value = own.to(tl.float32) * cos + tl.where(first, -product, product)
        return tl.where(column < R, rounded(value, own.dtype), own)
