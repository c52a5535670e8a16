"""kvc::project_heads against fp64."""

import pytest
import torch

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES

project = torch.ops.kvc.project_heads.default


@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape):
    (x, w), _ = OPS["project_heads"].example(SHAPES[shape])
    exact = torch.einsum("thi,hij->thj", x.double(), w.double())
    torch.testing.assert_close(project(x, w).double(), exact.to(x.dtype).double(), rtol=2**-7, atol=1e-5)


def test_strides_do_not_matter():
    (x, w), _ = OPS["project_heads"].example(SHAPES["odd_heads"])
    turned = w.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(project(x[::2], turned), project(x[::2].contiguous(), w.contiguous()))
    assert project(x[:0], w).shape == (0, *x.shape[1:2], w.shape[2])
