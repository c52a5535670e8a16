"""kvc::step_positions against a loop over the tokens."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvc.ops.example_inputs import Shape, committed, positions, query_starts, sequence_ids

step_positions = torch.ops.kvc.step_positions.default
sequences = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 5)), max_size=5)


@given(sequences, st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_positions_and_lengths(batch, padding):
    shape = Shape(committed=tuple(c for c, _ in batch), own=tuple(n for _, n in batch), padding=padding)
    found, lengths = step_positions(committed(shape), query_starts(shape), sequence_ids(shape))
    assert found.dtype == lengths.dtype == torch.int32
    assert found.tolist() == [p for c, n in batch for p in range(c, c + n)] + [0] * padding
    assert lengths.tolist() == [c + n for c, n in batch]


def test_padding_sequences_keep_their_length():
    """A padded batch: the last sequences have no tokens and committed length 0."""
    starts = torch.tensor([0, 1, 2, 2, 2], dtype=torch.int32)
    ids = torch.tensor([0, 1, -1, -1], dtype=torch.int32)
    found, lengths = step_positions(torch.tensor([7, 9, 0, 0], dtype=torch.int32), starts, ids)
    assert found.tolist() == [7, 9, 0, 0] and lengths.tolist() == [8, 10, 0, 0]


def test_many_tokens_and_strides():
    shape = Shape(committed=(3, 10), own=(65_000, 553))
    args = [tensor.repeat_interleave(2)[::2] for tensor in (committed(shape), query_starts(shape), sequence_ids(shape))]
    assert torch.equal(step_positions(*args)[0], positions(shape))
