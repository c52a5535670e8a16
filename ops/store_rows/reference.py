"""Reference of kvc::store_rows."""

from collections.abc import Sequence

import torch

from kvc.ops.paging import raw_layout, write_planes


def store_rows(pool: torch.Tensor, planes: Sequence[torch.Tensor], rows: torch.Tensor, *, tokens_per_page: int) -> None:
    """Write one encoded row a token into pages of a pool; no other byte changes.

    pool uint8 [P, page_bytes], written in place, pages may lie apart; planes uint8 [T, heads, row_bytes] each, in page
    order, each plane of a page starting on a multiple of 16 bytes; rows i32 [T] = page * tokens_per_page + offset, -1
    writes nothing.
    Errors, all before anything is written: KVC551 shapes, dtypes, planes that do not add up to page_bytes; KVC552 row
    outside the pool; KVC553 a row given twice. Source: docs/semantics.md.
    """
    shapes = tuple((plane.shape[1], plane.shape[2]) for plane in planes)
    write_planes(pool, planes, rows, raw_layout(shapes, tokens_per_page))
