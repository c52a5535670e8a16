"""Rounding to small number formats and back, bit for bit as torch does it.

On a GPU the conversions are single instructions; Triton's interpreter gets some of them wrong, so under it the same
bits come from integer arithmetic.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def e4m3_code(y, x):
    """e4m3 codes (uint8) of fp32 values y, with the signs of x: clamped to +-448, nearest even, NaN stays NaN.

    y is x times something positive; of a NaN the sign is lost in a product on some devices.
    """
    sign = (x.to(tl.uint32, bitcast=True) >> 24) & 0x80
    size = tl.minimum(tl.abs(y), 448.0)
    if INTERPRETED:
        normal = size.to(tl.uint32, bitcast=True)
        normal = ((normal + 0x7FFFF + ((normal >> 20) & 1)) >> 20) - 960
        # 2^14 has a last bit of 2^-9, the step of the subnormal codes.
        small = (size + 16384.0).to(tl.uint32, bitcast=True) - 0x46800000
        code = tl.where(size < 0.015625, small, normal)
    else:
        code = size.to(tl.float8e4nv).to(tl.uint8, bitcast=True).to(tl.uint32)
    return (tl.where(y != y, 0x7F, code) | sign).to(tl.uint8)


@triton.jit
def e4m3_value(code):
    """fp32 values of e4m3 codes (uint8)."""
    return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit
def e2m1_code(x, y):
    """E2M1 codes (uint32) of y = x * inverse: nearest, ties to the even code, saturating, with the sign of x.

    Below 2 the step is 1/2, which is what a last bit is worth in 2^22; from 2 on a code is the exponent and one bit.
    """
    size = tl.abs(y)
    bits = size.to(tl.uint32, bitcast=True)
    small = (size + 4194304.0).to(tl.uint32, bitcast=True) & 7
    large = ((bits + 0x1FFFFF + ((bits >> 22) & 1)) >> 22) - 252
    code = tl.minimum(tl.where(size < 2.0, small, large), 7)
    sign = (x.to(tl.uint32, bitcast=True) >> 28) & 8
    return tl.where(x != x, 0, code | sign)


@triton.jit
def e2m1_value(code):
    """fp32 values of E2M1 codes (any integers below 16): the bits of an fp32 number 2^-126 times as large."""
    bits = ((code.to(tl.uint32) & 7) << 22) | ((code.to(tl.uint32) & 8) << 28)
    return bits.to(tl.float32, bitcast=True) * 8.507059173023462e37


@triton.jit
def rounded(x, DTYPE: tl.constexpr):
    """fp32 values in an activation dtype, nearest even."""
    if INTERPRETED and tl.bfloat16 == DTYPE:
        bits = x.to(tl.uint32, bitcast=True)
        high = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return tl.where(x != x, 0x7FFF, high).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(DTYPE)
