"""fp8 on tiles ``[rows, features]``."""

# mypy: ignore-errors
import triton
import triton.language as tl  # noqa: F401  the interpreter looks for it

from kvc.ops.device.numbers import e4m3_code, e4m3_value


@triton.jit
def encode(x, factor):
    """Codes (uint8) of fp32 values under ``factor``, the second number of the scale operand."""
    return e4m3_code(x * factor, x)


@triton.jit
def decode(codes, scale):
    """fp32 values."""
    return e4m3_value(codes) * scale
