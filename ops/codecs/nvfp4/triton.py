"""nvfp4 on tiles ``[rows, features]``, a power of two of features and at least one group of 16."""

# mypy: ignore-errors
import triton
import triton.language as tl

from kvc.ops.device.numbers import e2m1_code, e2m1_value, e4m3_code, e4m3_value

GROUP = tl.constexpr(16)


@triton.jit
def encode(x, scale, factor):
    """Packed codes (uint8 ``[rows, features / 2]``, the even feature low) and e4m3 scales of every 16 fp32 values."""
    ROWS: tl.constexpr = x.shape[0]
    GROUPS: tl.constexpr = x.shape[1] // GROUP
    groups = tl.reshape(x, [ROWS, GROUPS, GROUP])
    amax = tl.max(tl.where(groups != groups, 0.0, tl.abs(groups)), 2)
    scales = e4m3_code(amax * factor, amax)
    steps = e4m3_value(scales) * scale
    inverse = tl.where(steps == 0.0, 0.0, tl.div_rn(1.0, steps))
    codes = e2m1_code(groups, groups * inverse[:, :, None])
    low, high = tl.split(tl.reshape(codes, [ROWS, x.shape[1] // 2, 2]))
    return (low | (high << 4)).to(tl.uint8), scales


@triton.jit
def decode(packed, scales, scale):
    """fp32 values."""
    ROWS: tl.constexpr = packed.shape[0]
    FEATURES: tl.constexpr = packed.shape[1] * 2
    values = tl.reshape(tl.join(e2m1_value(packed & 15), e2m1_value(packed >> 4)), [ROWS, FEATURES // GROUP, GROUP])
    return tl.reshape(values * (e4m3_value(scales) * scale)[:, :, None], [ROWS, FEATURES])
