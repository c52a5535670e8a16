"""Planes of a pool and the rows in them: what every op that touches pages shares.

The byte formula is `kvc.encodings.page_layout`; here its offsets become views of a pool.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from kvc.encodings import Encoding, Field, PageLayout, PartFormat, page_layout
from kvc.ops.axes import known, wrong
from kvc.ops.codecs import row_fields, row_format

_RAW = Encoding("raw", "raw", (PartFormat("data", "uint8", 8),), "none", "planes that are bytes already")


@lru_cache(maxsize=256)
def raw_layout(planes: tuple[tuple[int, int], ...], tokens_per_page: int) -> PageLayout:
    """The page of planes ``(heads, row_bytes)`` in page order."""
    return page_layout(_RAW, tuple(Field(str(i), *plane) for i, plane in enumerate(planes)), tokens_per_page)


def check_pool(op: str, pool: torch.Tensor, layout: PageLayout, argument: str = "pool") -> None:
    """Raise KVC551 unless the pages of the pool have the layout's bytes, without gaps inside a page and apart."""
    page_bytes = pool.shape[1]
    if known(page_bytes) and page_bytes != layout.page_bytes:
        expected = f"{layout.page_bytes}: {layout.tokens_per_page} tokens a page"
        raise wrong(op, argument, f"axis page_bytes is {page_bytes}, expected {expected}")
    if known(pool.stride(1)) and pool.stride(1) != 1:
        raise wrong(op, argument, f"axis page_bytes has stride {pool.stride(1)}, expected 1")
    if known(*pool.shape, pool.stride(0)) and pool.shape[0] > 1 and pool.stride(0) < page_bytes:
        raise wrong(op, argument, f"axis P has stride {pool.stride(0)}: pages of {page_bytes} bytes overlap")


def check_encoded_pool(
    op: str,
    pool: torch.Tensor,
    encoding: str,
    names: Sequence[str],
    heads: Sequence[Any],
    dims: Sequence[Any],
    tokens_per_page: int,
    argument: str = "pool",
) -> None:
    """`check_pool` for named fields in an encoding; what is symbolic is not checked."""
    if tokens_per_page < 1:
        raise wrong(op, "tokens_per_page", f"is {tokens_per_page}, expected 1 or more")
    if not known(*heads, *dims):
        return
    try:
        layout = row_format(op, encoding, row_fields(names, heads, dims)).layout(tokens_per_page)
    except ValueError as error:
        raise wrong(op, "encoding", f"{encoding}: {error}") from error
    check_pool(op, pool, layout, argument)


def plane_views(pages: torch.Tensor, layout: PageLayout) -> list[torch.Tensor]:
    """The planes of pages ``uint8 [..., page_bytes]`` as views ``[..., heads, tokens_per_page, row_bytes]``."""
    tokens = layout.tokens_per_page
    return [
        pages.narrow(-1, plane.offset, plane.heads * tokens * plane.row_bytes).unflatten(
            -1, (plane.heads, tokens, plane.row_bytes)
        )
        for plane in layout.planes
    ]


def write_planes(pool: torch.Tensor, planes: Sequence[torch.Tensor], rows: torch.Tensor, layout: PageLayout) -> None:
    """Write planes ``uint8 [T, heads, row_bytes]`` to write rows ``[T]``; -1 writes nothing."""
    rows = rows.long()
    written = rows >= 0
    if not written.all():
        rows, planes = rows[written], [plane[written] for plane in planes]
    page, offset = rows // layout.tokens_per_page, rows % layout.tokens_per_page
    for view, plane in zip(plane_views(pool, layout), planes, strict=True):
        view[page, :, offset] = plane


def read_pages(pool: torch.Tensor, pages: torch.Tensor, layout: PageLayout) -> list[torch.Tensor]:
    """Copies of the given pages, head by head: planes ``uint8 [heads, pages, tokens_per_page, row_bytes]``."""
    return [view.transpose(0, 1) for view in plane_views(pool.index_select(0, pages), layout)]
