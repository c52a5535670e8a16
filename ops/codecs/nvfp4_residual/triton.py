"""nvfp4_residual on tiles ``[rows, features]``: of every 16 values 8 bytes of main codes, then 8 of the residual's."""

# mypy: ignore-errors
import triton
import triton.language as tl

from kvc.ops.codecs.nvfp4 import triton as nvfp4

HALF = tl.constexpr(8)


@triton.jit
def encode(x, scale, factor):
    """Codes (uint8 ``[rows, features]``) and scales (uint8 ``[rows, features / 8]``), both kinds side by side."""
    main, main_scales = nvfp4.encode(x, scale, factor)
    residual, residual_scales = nvfp4.encode(x - nvfp4.decode(main, main_scales, scale), scale, factor)
    ROWS: tl.constexpr = x.shape[0]
    GROUPS: tl.constexpr = x.shape[1] // nvfp4.GROUP
    pairs = tl.join(tl.reshape(main, [ROWS, GROUPS, HALF]), tl.reshape(residual, [ROWS, GROUPS, HALF]))
    codes = tl.reshape(tl.permute(pairs, [0, 1, 3, 2]), [ROWS, x.shape[1]])
    return codes, tl.reshape(tl.join(main_scales, residual_scales), [ROWS, 2 * GROUPS])


@triton.jit
def decode(codes, scales, scale):
    """fp32 values: the sum of both."""
    ROWS: tl.constexpr = codes.shape[0]
    GROUPS: tl.constexpr = codes.shape[1] // nvfp4.GROUP
    main, residual = tl.split(tl.permute(tl.reshape(codes, [ROWS, GROUPS, 2, HALF]), [0, 1, 3, 2]))
    main_scales, residual_scales = tl.split(tl.reshape(scales, [ROWS, GROUPS, 2]))
    first = nvfp4.decode(tl.reshape(main, [ROWS, GROUPS * HALF]), main_scales, scale)
    return first + nvfp4.decode(tl.reshape(residual, [ROWS, GROUPS * HALF]), residual_scales, scale)
