"""Products of every head on the device: sums in fp32, rounded once."""

import pytest
import torch
from against_reference import DEVICES, run_kernel

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES


def check(device: str, x: torch.Tensor, w: torch.Tensor) -> None:
    """Within half a unit in the last place of the exact product, and what another order of the sum changes."""
    got = run_kernel("project_heads", "triton", device, (x, w), {}).results[0].cpu()
    exact = torch.einsum("thi,hij->thj", x.double(), w.double())
    size = torch.einsum("thi,hij->thj", x.double().abs(), w.double().abs())
    half_ulp = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[x.dtype]
    assert got.dtype == x.dtype and got.is_contiguous()
    assert ((got.double() - exact).abs() <= half_ulp * exact.abs() * 1.001 + 2e-6 * size + 1e-30).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("sizes", [(1, 2, 16, 48), (5, 3, 80, 16), (17, 1, 7, 5), (0, 2, 4, 4)])
def test_sizes(sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    if device == "cpu" and dtype == torch.bfloat16:
        pytest.skip("the interpreter's products of bf16 are wrong")
    tokens, heads, rows, columns = sizes
    generator = torch.Generator().manual_seed(columns)
    x = torch.randn(tokens, heads, rows, generator=generator).to(dtype)
    w = torch.randn(heads, rows, columns, generator=generator).to(dtype)
    check(device, x, w)
    check(device, x.transpose(0, 1).contiguous().transpose(0, 1), w.transpose(1, 2).contiguous().transpose(1, 2))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_examples(shape: str) -> None:
    args, _ = OPS["project_heads"].example(SHAPES[shape])
    check("cuda", *args)


@pytest.mark.gpu
def test_many_tokens() -> None:
    check("cuda", torch.randn(65_553, 2, 16).bfloat16(), torch.randn(2, 16, 8).bfloat16())
