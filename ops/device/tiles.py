"""Fields of cached rows as operands of products, in one of four modes.

- ``codes``: fp8 and nvfp4 rows as fp16 numbers without their scale, which multiplies scores and outputs instead. Exact:
  a code is 4 bits, or 2 bits times the 4 of its block's scale. Weights are rounded to fp16.
- ``bf16``: rows as they are. Weights are the sum of two bf16 numbers.
- ``split``: rows are the sum of two bf16 numbers, 16 bits in all, and so are weights: any other codec, or two pools.
- ``ieee``: everything in fp32, for fp32 activations.

Queries of 16-bit dtypes keep all of their bits: those in bf16 are multiplied by a power of two to suit fp16.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

NVFP4_UNIT = tl.constexpr(16384.0)  # E2M1 codes shifted into the bits of fp16 are 2^-14 of their value


def mode_of(codec: str, activations: str, mixed: bool) -> str:
    """The mode of a paged field; ``activations`` as torch writes the dtype."""
    if activations == "float32":
        return "ieee"
    if codec in ("fp8", "nvfp4") and not mixed:
        return "codes"
    return _in_bf16("bf16" if (codec, activations, mixed) == ("bf16", "bfloat16", False) else "split")


def mode_of_dense(rows: str, activations: str) -> str:
    """The mode of a field that was gathered before."""
    if activations == "float32":
        return "ieee"
    exact = {"float16": "codes", "bfloat16": _in_bf16("bf16")}
    return exact.get(rows, _in_bf16("split")) if rows == activations else _in_bf16("split")


def _in_bf16(mode: str) -> str:
    """A mode that computes in bf16; the interpreter cannot, and takes fp32 for it."""
    return "ieee" if triton.knobs.runtime.interpret else mode


@triton.jit
def load_dense(pointer, start, mask, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Rows ``[rows, PADDED]`` as they lie in memory, 0 where masked and past ``DIM``."""
    column = tl.arange(0, PADDED)
    return tl.load(pointer + start[:, None] + column[None, :], mask=mask[:, None] & (column < DIM)[None, :], other=0)


@triton.jit
def load_codes(pool, data, scales, mask, CODEC: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr):
    """fp16 ``[rows, PADDED]`` without the field's scale; of nvfp4 2^-14 of that."""
    if CODEC == "fp8":
        return load_dense(pool, data, mask, DIM, PADDED).to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:
        tl.static_assert(CODEC == "nvfp4", "a codec whose codes are no fp16 numbers")
        packed = load_dense(pool, data, mask, DIM // 2, PADDED // 2).to(tl.uint16)
        sizes = load_dense(pool, scales, mask, DIM // 16, PADDED // 16).to(tl.float8e4nv, bitcast=True).to(tl.float16)
        low = ((packed & 0x7) << 9) | ((packed & 0x8) << 12)
        high = ((packed & 0x70) << 5) | ((packed & 0x80) << 8)
        ROWS: tl.constexpr = packed.shape[0]
        values = tl.join(low, high).to(tl.float16, bitcast=True)
        grouped = tl.reshape(values, [ROWS, PADDED // 16, 16]) * sizes[:, :, None]
        return tl.reshape(grouped, [ROWS, PADDED])


@triton.jit
def value_factor(scale, MODE: tl.constexpr, CODEC: tl.constexpr):
    """What a field's codes are to be multiplied by to be its values."""
    if MODE == "codes" and CODEC == "fp8":
        return tl.load(scale)
    elif MODE == "codes" and CODEC == "nvfp4":
        return tl.load(scale) * NVFP4_UNIT
    else:
        return 1.0


@triton.jit
def halves(x, MODE: tl.constexpr):
    """A tile as the operands of its mode: itself twice, or two bf16 tiles whose sum it is."""
    if MODE == "split":
        # Cut off, not rounded: the compiler fails on a difference to a rounded number in some layouts.
        high = (x.to(tl.uint32, bitcast=True) & 0xFFFF0000).to(tl.float32, bitcast=True)
        return high.to(tl.bfloat16), (x - high).to(tl.bfloat16)
    elif MODE == "codes":
        return x.to(tl.float16), x.to(tl.float16)
    else:
        return x, x


@triton.jit
def load_queries(q, start, mask, MODE: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr):
    """Queries as operands ``[PADDED, M]`` of a mode, and what their scores are to be multiplied by, ``[M]``."""
    column = tl.arange(0, PADDED)
    x = tl.load(q + start[None, :] + column[:, None], mask=mask[None, :] & (column < DIM)[:, None], other=0)
    scale = tl.full([x.shape[1]], 1.0, tl.float32)
    if MODE == "codes":
        if x.dtype == tl.bfloat16:  # the largest becomes 1 to 2: what fp16 then loses is 2^-24 of it
            value = x.to(tl.float32)
            largest = tl.max(tl.abs(value), 0)
            exponent = tl.minimum(tl.maximum((largest.to(tl.uint32, bitcast=True) >> 23).to(tl.int32), 1), 253)
            scale = (exponent << 23).to(tl.float32, bitcast=True)
            x = (value * ((254 - exponent) << 23).to(tl.float32, bitcast=True)[None, :]).to(tl.float16)
        return x, x, scale
    elif MODE == "ieee":
        return x.to(tl.float32), x.to(tl.float32), scale
    else:
        high, low = halves(x.to(tl.float32), "split")
        return high, low, scale


@triton.jit
def product(x, x_low, y, y_low, acc, MODE: tl.constexpr):
    """``acc + x @ y`` of operands in a mode, in fp32."""
    if MODE == "ieee":
        return tl.dot(x, y, acc, input_precision="ieee")
    elif MODE == "codes":
        return tl.dot(x, y, acc)
    elif MODE == "bf16":
        return tl.dot(x, y, tl.dot(x, y_low, acc))
    else:
        return tl.dot(x, y, tl.dot(x_low, y, tl.dot(x, y_low, acc)))


@triton.jit
def guarded(acc, v, v_low, seen):
    """Operands of ``acc + v^T p`` without what is not finite: a weight of 0 hides no NaN or Inf.

    ``acc [V, M]`` gets what rows of ``v [N, V]`` that a query sees (``seen [N, M]``) make of it.
    """
    value = v.to(tl.float32)
    up, down = (value != value) | (value == float("inf")), (value != value) | (value == float("-inf"))
    sight = seen.to(tl.float16)
    above, below = tl.dot(tl.trans(up.to(tl.float16)), sight), tl.dot(tl.trans(down.to(tl.float16)), sight)
    acc += tl.where(above > 0, float("inf"), 0.0)
    acc -= tl.where(below > 0, float("inf"), 0.0)
    finite = ~(up | down)
    return acc, tl.where(finite, v, 0.0).to(v.dtype), tl.where(finite, v_low, 0.0).to(v_low.dtype)
