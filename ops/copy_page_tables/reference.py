"""Reference of kvc::copy_page_tables."""

from collections.abc import Sequence

import torch


def copy_page_tables(
    slot_tables: torch.Tensor, *, lifecycles: Sequence[int], pages_per_slot: Sequence[int], offsets: Sequence[int]
) -> torch.Tensor:
    """Make the page tables of n pools from the slot tables of their lifecycles.

    slot_tables i32 [G, B, W], slot ids or -1; one entry a pool in each list: its lifecycle (index into G), the pages in
    one of its slots, and the index of the page meant.
    Returns i32 [n, B, W]: ``slot * pages_per_slot + offset``; -1 stays -1.
    Errors: KVC551 shapes and lists, KVC552 an entry below -1 or a page id beyond int32. Source: docs/semantics.md.
    """
    device = slot_tables.device
    slots = slot_tables.index_select(0, torch.tensor(lifecycles, dtype=torch.int32, device=device))
    pages, offset = (
        torch.tensor(numbers, dtype=torch.int32, device=device)[:, None, None] for numbers in (pages_per_slot, offsets)
    )
    return torch.where(slots < 0, slots, slots * pages + offset)
