"""kvc::copy_page_tables: slot * pages_per_slot + offset, -1 stays -1."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvc.ops import OPS

copy = OPS["copy_page_tables"].overload


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_every_entry(data):
    groups, sequences, width = (data.draw(st.integers(low, 4)) for low in (1, 0, 0))
    slots = torch.tensor(
        data.draw(
            st.lists(st.integers(-1, 2**20), min_size=groups * sequences * width, max_size=groups * sequences * width)
        ),
        dtype=torch.int32,
    ).view(groups, sequences, width)
    pools = data.draw(
        st.lists(st.tuples(st.integers(0, groups - 1), st.integers(1, 100), st.integers(0, 99)), max_size=5)
    )
    pools = [(group, pages, offset % pages) for group, pages, offset in pools]
    lists = [list(numbers) for numbers in zip(*pools, strict=True)] or [[], [], []]
    found = copy(slots, **dict(zip(("lifecycles", "pages_per_slot", "offsets"), lists, strict=True)))
    expected = [[[s if s < 0 else s * m + o for s in row] for row in slots[g].tolist()] for g, m, o in pools]
    assert found.dtype == torch.int32 and found.shape == (len(pools), sequences, width) and found.tolist() == expected


def test_long_rows_and_strides():
    slots = torch.arange(-1, 65_552, dtype=torch.int32).view(1, 1, -1)
    found = copy(slots.transpose(0, 2).contiguous().transpose(0, 2), lifecycles=[0], pages_per_slot=[3], offsets=[1])
    assert found[0, 0, :3].tolist() == [-1, 1, 4] and found[0, 0, -1] == 65_551 * 3 + 1


def test_the_largest_page_id_fits():
    slots = torch.tensor([[[2**31 // 32 - 1]]], dtype=torch.int32)
    assert copy(slots, lifecycles=[0], pages_per_slot=[32], offsets=[31]).item() == 2**31 - 1
