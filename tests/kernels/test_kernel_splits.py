"""Partial results of splits are merged as kvc::merge_states does it."""

import math

import pytest
import torch
from against_reference import DEVICES

from kvc.ops.device import splits


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("parts", "rows", "width"), [(2, 5, 8), (3, 2, 80), (7, 1, 513), (64, 2, 64)])
def test_merge(parts: int, rows: int, width: int, device: str) -> None:
    generator = torch.Generator().manual_seed(parts * width)
    values = torch.randn(parts, rows, width, generator=generator)
    sums = torch.randn(parts, rows, generator=generator) * 5
    empty = torch.rand(parts, rows, generator=generator) < 0.3
    empty[:, 0] = True
    values[empty] = math.nan
    sums[empty] = -math.inf
    want = torch.ops.kvc.merge_states.default(values[:, :, None], sums[:, :, None])
    out, lse = torch.full((rows, width), math.nan, device=device), torch.full((rows,), math.nan, device=device)
    splits.merge(values.to(device), sums.to(device), out, lse)
    torch.testing.assert_close(out.cpu(), want[0][:, 0], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(lse.cpu(), want[1][:, 0], rtol=2e-6, atol=2e-6)


def test_one_split_is_the_result_itself() -> None:
    out, lse = torch.zeros(2, 3, 4), torch.zeros(2, 3)
    parts, part_lse = splits.partials(out, lse, 1)
    assert parts.data_ptr() == out.data_ptr() and part_lse.data_ptr() == lse.data_ptr()
    assert [tuple(x.shape) for x in splits.partials(out, lse, 3)] == [(3, 2, 3, 4), (3, 2, 3)]


@pytest.mark.parametrize(
    ("programs", "tokens", "count"), [(128, 8192, 2), (300, 8192, 1), (1, 8192, 32), (1, 100, 1), (0, 0, 1)]
)
def test_counts_follow_from_shapes(programs: int, tokens: int, count: int) -> None:
    assert splits.split_count(programs, tokens) == count
