"""kvc::write_rows against a loop over the tokens."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvc.ops import OPS

write_rows = OPS["write_rows"].overload


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_every_token(data):
    draw = data.draw
    sequences, width, size = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 3, 64]))
    table = [[draw(st.integers(-1, 50)) for _ in range(width)] for _ in range(sequences)]
    tokens = draw(st.lists(st.tuples(st.integers(-1, sequences - 1), st.integers(0, width * size - 1)), max_size=9))
    ids, positions = (torch.tensor([t[i] for t in tokens], dtype=torch.int32) for i in (0, 1))
    found = write_rows(torch.tensor(table, dtype=torch.int32), positions, ids, tokens_per_page=size)
    pages = [-1 if s < 0 else table[s][p // size] for s, p in tokens]
    expected = [-1 if page < 0 else page * size + p % size for page, (_, p) in zip(pages, tokens, strict=True)]
    assert found.dtype == torch.int32 and found.tolist() == expected


def test_positions_of_padding_are_not_read():
    table = torch.tensor([[4]], dtype=torch.int32)
    ids = torch.tensor([0, -1, -1], dtype=torch.int32)
    found = write_rows(table, torch.tensor([3, -7, 10**6], dtype=torch.int32), ids, tokens_per_page=8)
    assert found.tolist() == [35, -1, -1]


def test_no_sequence_and_many_tokens():
    nothing = torch.full((65_553,), -1, dtype=torch.int32)
    assert torch.equal(write_rows(nothing[:0].view(0, 4), nothing * 0, nothing, tokens_per_page=8), nothing)
    positions = torch.arange(65_553, dtype=torch.int32)
    table = torch.arange(8195, dtype=torch.int32).flip(0)[None]
    found = write_rows(table.t().contiguous().t(), positions, nothing * 0, tokens_per_page=8)
    assert torch.equal(found, (8194 - positions // 8) * 8 + positions % 8)


def test_pages_not_held_are_not_written():
    table = torch.tensor([[-1, 2], [3, -1]], dtype=torch.int32)
    ids = torch.tensor([0, 0, 1, 1], dtype=torch.int32)
    found = write_rows(table, torch.tensor([5, 13, 5, 13], dtype=torch.int32), ids, tokens_per_page=8)
    assert found.tolist() == [-1, 21, 29, -1]
