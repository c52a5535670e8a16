"""Reference of kvc::write_rows."""

import torch


def write_rows(
    page_table: torch.Tensor, positions: torch.Tensor, sequence_ids: torch.Tensor, *, tokens_per_page: int
) -> torch.Tensor:
    """The write row of every token: where kvc::store_rows puts it.

    page_table i32 [B, W], page ids or -1; positions i32 [T]; sequence_ids i32 [T], -1 for padding.
    Returns i32 [T] = ``page * tokens_per_page + position % tokens_per_page``; -1 for padding and where the page is -1.
    Errors: KVC551 shapes and dtypes, KVC552 a sequence that does not exist, a position beyond the table or a
    write row beyond int32.
    Source: docs/semantics.md.
    """
    if not page_table.numel():
        return torch.full_like(positions, -1)
    padding = sequence_ids < 0
    position = positions.masked_fill(padding, 0)
    page = page_table[sequence_ids.clamp(min=0).long(), (position // tokens_per_page).long()]
    return (page * tokens_per_page + position % tokens_per_page).masked_fill(padding | (page < 0), -1)
