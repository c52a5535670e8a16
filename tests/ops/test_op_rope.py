"""kvc::rope: every product and sum rounded apart, both layouts, partial rotation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_oracles import naive_rope

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

rope = torch.ops.kvc.rope.default


@pytest.mark.parametrize("shape", SHAPES)
def test_against_scalar_arithmetic(shape):
    args, kwargs = OPS["rope"].example(SHAPES[shape])
    assert torch.equal(rope(*args, **kwargs), naive_rope(*args, **kwargs).to(args[0].dtype))


@given(
    st.integers(0, 2**31),
    st.sampled_from([(1, 1, 2, 2), (3, 3, 8, 4), (5, 9, 10, 6), (2, 1, 7, 0)]),
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
@settings(deadline=None, max_examples=50)
def test_any_values(seed, sizes, layout, dtype):
    tokens, heads, dim, width = sizes
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, heads, dim, generator=generator).to(dtype)
    table = torch.randn(11, width, generator=generator)
    positions = torch.randint(0, 11, (tokens,), generator=generator).int()
    assert torch.equal(rope(x, table, positions, layout=layout), naive_rope(x, table, positions, layout).to(dtype))


def test_a_fused_multiply_add_would_differ():
    """The vector that tells apart a*cos - b*sin rounded thrice from one with a fused product."""
    a = 1 + 2.0**-12
    x, table = torch.tensor([[[a, 1.0]]]), torch.tensor([[a, 1 + 2.0**-11]])
    turned = rope(x, table, torch.zeros(1, dtype=torch.int32), layout="half")
    assert turned[0, 0, 0] == 0.0 and a * a - (1 + 2.0**-11) == 2.0**-24


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_more_tokens_than_a_grid_axis_holds(layout):
    args, kwargs = OPS["rope"].example(
        Shape(committed=(0,), own=(65_553,), heads=1, head_dim=4, rope_dim=4, layout=layout)
    )
    whole = rope(*args, **kwargs)
    x, table, positions = args
    for part in (slice(0, 9), slice(65_535, 65_553)):
        assert torch.equal(whole[part], naive_rope(x[part], table, positions[part], layout).to(x.dtype))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_strided_inputs_and_what_passes(layout):
    args, kwargs = OPS["rope"].example(Shape(rope_dim=12, layout=layout))
    x, table, positions = args
    turned = rope(*args, **kwargs)
    assert torch.equal(turned[..., 12:], x[..., 12:])
    strided = x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert torch.equal(rope(strided, table.t().contiguous().t(), positions.repeat_interleave(2)[::2], **kwargs), turned)


def test_no_token():
    args, kwargs = OPS["rope"].example(Shape())
    assert rope(args[0][:0], args[1], args[2][:0], **kwargs).shape == (0, 4, 32)
