"""kvc::merge_states: parts, in any order and grouping, give the whole."""

import math
from itertools import pairwise

import pytest
import torch
from op_oracles import naive_attention

from kvc.ops import OPS

merge = OPS["merge_states"].overload


def parts(count, generator, keys=24):
    q, k, v = (torch.randn(*size, generator=generator) for size in ((5, 4, 8), (keys, 2, 8), (keys, 2, 6)))
    edges = [i * keys // count for i in range(count + 1)]
    states = [naive_attention(q, k[a:b], v[a:b], [b - a] * 5, 0.7) for a, b in pairwise(edges)]
    whole = naive_attention(q, k, v, [keys] * 5, 0.7)
    return torch.stack([s[0].float() for s in states]), torch.stack([s[1].float() for s in states]), whole


def close(found, expected):
    torch.testing.assert_close(found[0].double(), expected[0].double(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(found[1].double(), expected[1].double(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 24])
def test_parts_give_the_whole(count):
    out, lse, whole = parts(count, torch.Generator().manual_seed(count))
    close(merge(out, lse), whole)
    close(merge(out.flip(0), lse.flip(0)), whole)


def test_grouping_does_not_matter():
    out, lse, whole = parts(4, torch.Generator().manual_seed(0))
    left, right = merge(out[:1], lse[:1]), merge(out[1:], lse[1:])
    close(merge(torch.stack((left[0], right[0])), torch.stack((left[1], right[1]))), whole)


def test_an_empty_part_contributes_nothing_whatever_it_holds():
    out, lse, _ = parts(3, torch.Generator().manual_seed(1))
    expected = merge(out[1:], lse[1:])
    out[0], lse[0] = math.nan, -math.inf
    assert all(torch.equal(a, b) for a, b in zip(merge(out, lse), expected, strict=True))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_all_parts_empty(count):
    out, lse = merge(torch.full((count, 2, 3, 4), math.nan), torch.full((count, 2, 3), -math.inf))
    assert torch.equal(out, torch.zeros(2, 3, 4)) and torch.equal(lse, torch.full((2, 3), -math.inf))


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_stable_for_large_scores(shift):
    out, lse, whole = parts(3, torch.Generator().manual_seed(2))
    found = merge(out, lse + shift)
    torch.testing.assert_close(found[0].double(), whole[0], rtol=5e-3, atol=5e-3)
    assert (found[1] - shift - whole[1]).abs().max() < 5e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_activation_dtypes_are_rounded_once(dtype):
    out, lse, _ = parts(3, torch.Generator().manual_seed(3))
    found = merge(out.to(dtype), lse)
    assert found[0].dtype == dtype and found[1].dtype == torch.float32
    assert torch.equal(found[0], merge(out.to(dtype).float(), lse)[0].to(dtype))


def test_strided():
    out, lse, _ = parts(3, torch.Generator().manual_seed(4))
    found = merge(out.transpose(1, 3).contiguous().transpose(1, 3), lse.transpose(0, 2).contiguous().transpose(0, 2))
    close(found, merge(out, lse))
