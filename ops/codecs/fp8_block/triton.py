"""fp8_block on tiles ``[rows, features]``, a power of two of features and at least one block of 128."""

# mypy: ignore-errors
import triton
import triton.language as tl

from kvc.ops.device.numbers import e4m3_code, e4m3_value

BLOCK = tl.constexpr(128)
LEAST = tl.constexpr(1e-4)
RCP_MAX = tl.constexpr(0.002232142857142857)


@triton.jit
def encode(x):
    """Codes (uint8) of fp32 values, and the fp32 scales of their blocks."""
    ROWS: tl.constexpr = x.shape[0]
    blocks = tl.reshape(x, [ROWS, x.shape[1] // BLOCK, BLOCK])
    amax = tl.max(tl.where(blocks != blocks, 0.0, tl.abs(blocks)), 2)
    scales = tl.maximum(amax, LEAST) * RCP_MAX
    codes = e4m3_code(blocks * tl.div_rn(1.0, scales)[:, :, None], blocks)
    return tl.reshape(codes, [ROWS, x.shape[1]]), scales


@triton.jit
def decode(codes, scales):
    """fp32 values."""
    ROWS: tl.constexpr = codes.shape[0]
    values = tl.reshape(e4m3_value(codes), [ROWS, codes.shape[1] // BLOCK, BLOCK]) * scales[:, :, None]
    return tl.reshape(values, [ROWS, codes.shape[1]])
