"""kvc::expand_mla: K and V of every head, straight to fp8, V transposed."""

import pytest
import torch

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape, query_starts, scale_for

expand = torch.ops.kvc.expand_mla.default
quantize = torch.ops.kvc.quantize_fp8.default


def rows(shape):
    return inputs.latent(shape), inputs.k_rope(shape), *inputs.weights(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape):
    latent, rope, w_uk, w_uv = rows(SHAPES[shape])
    k, v = expand(latent, rope, w_uk, w_uv, None, None, None)
    nope = torch.einsum("tc,hnc->thn", latent[:, 0].double(), w_uk.double())
    torch.testing.assert_close(k[..., : nope.shape[2]].double(), nope, rtol=2**-7, atol=2e-2)
    exact = torch.einsum("tc,hcv->thv", latent[:, 0].double(), w_uv.double())
    torch.testing.assert_close(v.double(), exact, rtol=2**-7, atol=2e-2)
    assert torch.equal(k[..., nope.shape[2] :], rope.expand(-1, k.shape[1], -1))


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_quantization_has_the_bits_of_the_op(shape):
    args = rows(SHAPES[shape])
    scales = scale_for("fp8", "k"), scale_for("fp8", "v")
    plain = expand(*args, None, None, None)
    for fused, x, scale in zip(expand(*args, None, *scales), plain, scales, strict=True):
        assert torch.equal(fused, quantize(x, scale))


@pytest.mark.parametrize("own", [(1,), (16, 1, 17, 0, 3), (31,), (0, 0)])
def test_transposed_columns(own):
    shape = Shape(committed=(0,) * len(own), own=own, padding=2)
    args = rows(shape)
    _, plain = expand(*args, None, None, None)
    _, turned = expand(*args, query_starts(shape), None, None, v_layout="transposed")
    assert turned.shape == (shape.heads, shape.v_head_dim, shape.tokens + 16 * len(own)) and turned.stride(1) % 16 == 0
    column, token, seen = 0, 0, torch.zeros(turned.shape[2], dtype=torch.bool)
    for count in own:
        assert column % 16 == 0
        assert torch.equal(turned[:, :, column : column + count].permute(2, 0, 1), plain[token : token + count])
        seen[column : column + count] = True
        column, token = (column + count + 15) // 16 * 16, token + count
    assert not turned[:, :, ~seen].any()
