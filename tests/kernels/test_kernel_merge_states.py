"""Partial results combined on the device are those of the reference, up to the rounding of its arithmetic."""

import math

import pytest
import torch
from against_reference import DEVICES, run_kernel, run_reference


def states(parts: int, tokens: int, heads: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(parts * width)
    out = torch.randn(parts, tokens, heads, width, generator=generator).to(dtype)
    lse = torch.randn(parts, tokens, heads, generator=generator) * 5
    empty = torch.rand(parts, tokens, heads, generator=generator) < 0.3
    out[empty] = math.nan
    return out, lse.masked_fill(empty, -math.inf)


def check(device: str, out: torch.Tensor, lse: torch.Tensor) -> None:
    got, expected = (
        run("merge_states", *rest)
        for run, rest in (
            (lambda op, *a: run_kernel(op, "triton", device, *a).results, ((out, lse), {})),
            (lambda op, *a: run_reference(op, *a).results, ((out, lse), {})),
        )
    )
    ulp = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[out.dtype]
    torch.testing.assert_close(got[0].cpu(), expected[0], rtol=ulp, atol=ulp)
    torch.testing.assert_close(got[1].cpu(), expected[1], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "sizes", [(1, 3, 2, 8), (4, 5, 3, 80), (7, 1, 1, 512), (0, 2, 2, 4), (3, 0, 2, 4), (2, 2, 2, 1)]
)
def test_parts(sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    check(device, *states(*sizes, dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_large_scores_and_strides(device: str) -> None:
    out, lse = states(3, 4, 2, 16, torch.float32)
    check(device, out, lse * 1e3)
    check(device, out.transpose(0, 1).contiguous().transpose(0, 1), lse.transpose(1, 2).contiguous().transpose(1, 2))


@pytest.mark.gpu
def test_more_rows_than_a_grid_axis_has() -> None:
    check("cuda", *states(2, 65_553, 16, 8, torch.bfloat16))
