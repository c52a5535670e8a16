"""Codecs on the device give the bytes and the values of the references, for every code and the awkward values."""

import math

import pytest
import torch
from against_reference import DEVICES, assert_exact

from kvc.ops import OPS
from kvc.ops.codecs import CODECS, scale_operand
from kvc.ops.example_inputs import SHAPES, scale_for

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
AWKWARD = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    448.0,
    -464.0,
    2e-38,
    2.0**-9,
    3 * 2.0**-10,
    0.25,
    0.75,
    1.25,
    2.5,
    5.0,
    -3.5,
]


def tricky(count: int, width: int) -> torch.Tensor:
    """Rows of many magnitudes with awkward values and ties strewn in."""
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(count, width, generator=generator) * torch.exp2(torch.randint(-12, 12, (count, 1)).float())
    x[::3] = (x[::3] * 4).round() / 4
    places = torch.randint(0, width, (count,), generator=generator)
    for row in range(count):
        x[row, places[row]] = AWKWARD[row % len(AWKWARD)]
    return x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_examples(codec: str, shape: str, device: str) -> None:
    for verb in ("quantize", "dequantize"):
        assert_exact(f"{verb}_{codec}", "triton", device, *OPS[f"{verb}_{codec}"].example(SHAPES[shape]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", CODECS)
def test_awkward_values(codec: str, dtype: torch.dtype, device: str) -> None:
    x = tricky(60, 128).to(dtype)
    if codec == "fp8_block":  # its scale is then infinite too, and the sign of inf * 0 is the machine's
        x = x.nan_to_num(posinf=9.0, neginf=-9.0)
    for scale in (scale_for(codec, "k"), scale_operand(codec, 1.0) if CODECS[codec].factor else None):
        assert_exact(f"quantize_{codec}", "triton", device, (x, scale), {})
        assert_exact(f"quantize_{codec}", "triton", device, (x.view(3, 4, 5, 128).transpose(0, 1), scale), {})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("codec", ["fp8", "fp8_block", "nvfp4"])
def test_nan(codec: str, device: str) -> None:
    x = tricky(8, 128).nan_to_num(posinf=9.0, neginf=-9.0)
    x[2, 5], x[3, :64], x[4] = math.nan, -math.nan, math.nan
    assert_exact(f"quantize_{codec}", "triton", device, (x, scale_for(codec, "k")), {})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_code(dtype: torch.dtype, device: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(16, 16)
    finite = codes.masked_fill(codes & 0x7F == 0x7F, 0)
    assert_exact("dequantize_fp8", "triton", device, (finite, scale_for("fp8", "k")), {"dtype": dtype})
    scales = torch.arange(32, dtype=torch.uint8).view(16, 2) * 7 % 127
    assert_exact("dequantize_nvfp4", "triton", device, (codes, scales, scale_for("nvfp4", "k")), {"dtype": dtype})


@pytest.mark.gpu
def test_many_values() -> None:
    for codec in CODECS:
        x = tricky(65_553, 128).to(torch.bfloat16)
        if codec == "fp8_block":
            x = x.nan_to_num(posinf=9.0, neginf=-9.0)
        x[0] *= 2.0**-130  # subnormal, where the interpreter's conversions are wrong
        assert_exact(f"quantize_{codec}", "triton", "cuda", (x, scale_for(codec, "k")), {})
