"""kvc::store_rows: whole-pool byte compares."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_oracles import GQA_ENCODINGS, naive_store

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

store = torch.ops.kvc.store_rows.default


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_only_the_addressed_rows_change(shape, encoding):
    (pool, planes, rows), kwargs = OPS["store_rows"].example(replace(SHAPES[shape], encoding=encoding))
    expected = naive_store(pool, planes, rows, **kwargs)
    assert store(pool, planes, rows, **kwargs) is None
    assert torch.equal(pool, expected) and not torch.equal(pool, torch.full_like(pool, 0xFF))


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_any_rows_and_planes(data):
    """Odd sizes leave gaps before the 16-byte boundaries; they keep their bytes too."""
    draw = data.draw
    tokens_per_page, pages, tokens = draw(st.sampled_from([1, 3, 16])), draw(st.integers(1, 4)), draw(st.integers(0, 9))
    shapes = draw(st.lists(st.tuples(st.sampled_from([1, 3]), st.sampled_from([1, 5, 16])), min_size=1, max_size=3))
    size = sum((heads * tokens_per_page * width + 15) // 16 * 16 for heads, width in shapes)
    unique = draw(st.permutations(range(pages * tokens_per_page)))[:tokens]
    rows = torch.tensor([draw(st.sampled_from([row, -1])) for row in unique], dtype=torch.int32)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    planes = [torch.randint(256, (len(rows), *shape), generator=generator, dtype=torch.uint8) for shape in shapes]
    pool = torch.randint(256, (pages, size), generator=generator, dtype=torch.uint8)
    expected = naive_store(pool, planes, rows, tokens_per_page)
    store(pool, planes, rows, tokens_per_page=tokens_per_page)
    assert torch.equal(pool, expected)


def test_pages_that_lie_apart_and_strided_planes():
    (pool, planes, rows), kwargs = OPS["store_rows"].example(Shape())
    wide = torch.arange(pool.shape[0] * 5000).remainder(251).to(torch.uint8).view(-1, 5000)
    before, view = wide.clone(), wide[:, 1001 : 1001 + pool.shape[1]]
    expected = naive_store(view, planes, rows, **kwargs)
    strided = [plane.permute(2, 1, 0).contiguous().permute(2, 1, 0) for plane in planes]
    store(view, strided, rows.repeat_interleave(2)[::2], **kwargs)
    assert torch.equal(view, expected)
    assert torch.equal(wide[:, :1001], before[:, :1001]) and torch.equal(wide[:, 3049:], before[:, 3049:])


def test_nothing_to_write():
    (pool, planes, rows), kwargs = OPS["store_rows"].example(Shape())
    store(pool, planes, torch.full_like(rows, -1), **kwargs)
    store(pool, [plane[:0] for plane in planes], rows[:0], **kwargs)
    assert (pool == 0xFF).all()


def test_more_tokens_than_a_grid_axis_holds():
    tokens = 65_553
    rows = torch.randperm(tokens + 5, generator=torch.Generator().manual_seed(0))[:tokens].int()
    plane = torch.arange(tokens * 2).remainder(251).to(torch.uint8).view(tokens, 1, 2)
    pool = torch.full((8195, 16), 0xFF, dtype=torch.uint8)
    store(pool, [plane], rows, tokens_per_page=8)
    expected = torch.full((8195 * 8, 2), 0xFF, dtype=torch.uint8)
    expected[rows.long()] = plane[:, 0]
    assert torch.equal(pool.view(-1, 2), expected)
