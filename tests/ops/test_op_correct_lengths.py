"""kvc::correct_lengths against a loop over the sequences."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvc.ops import OPS

correct_lengths = OPS["correct_lengths"].overload


@st.composite
def steps(draw):
    """Length before the step in flight, its tokens and the accepted ones; None: not in it. And an order of its rows."""
    one = st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
    batch = draw(st.lists(st.tuples(st.integers(0, 999), st.none() | one), max_size=6))
    rows = draw(st.permutations([i for i, (_, step) in enumerate(batch) if step]))
    return batch, {sequence: row for row, sequence in enumerate(rows)}


def int32(values):
    return torch.tensor(values, dtype=torch.int32)


@given(steps(), st.integers(0, 3))
@settings(deadline=None, max_examples=80)
def test_lengths(drawn, unused):
    batch, rows = drawn
    steps = [step or (0, 0) for _, step in batch]
    # Rows that no sequence has hold anything.
    accepted = [2**31 - 1] * (len(rows) + unused)
    for sequence, row in rows.items():
        accepted[row] = steps[sequence][1]
    found = correct_lengths(
        int32([length + n for (length, _), (n, _) in zip(batch, steps, strict=True)]),
        int32([n for n, _ in steps]),
        int32([rows.get(i, -1) for i in range(len(batch))]),
        int32(accepted),
    )
    assert found.dtype == torch.int32
    assert found.tolist() == [length + took for (length, _), (_, took) in zip(batch, steps, strict=True)]


def test_it_reads_strided_operands_and_writes_none():
    operands = [int32([9, 0, 7, 0]), int32([4, 0, 2, 0]), int32([1, 5, 0, 5]), int32([1, 9, 3, 9])]
    strided = [operand[::2] for operand in operands]
    before = [operand.clone() for operand in operands]
    assert correct_lengths(*strided).tolist() == [9 - 4 + 3, 7 - 2 + 1]
    assert all(map(torch.equal, operands, before))
