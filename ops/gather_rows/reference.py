"""Reference of kvc::gather_rows."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields, row_format
from kvc.ops.paging import plane_views


def gather_rows(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    dtype: torch.dtype,
) -> list[torch.Tensor]:
    """Read and dequantize the rows of every sequence.

    pool uint8 [P, page_bytes]; page_table i32 [B, W] page ids, -1 not held; lengths i32 [B] in tokens; one entry a
    field in scales (f32 [2] = [scale, factor], or None), fields (names: k, v or latent, rope), heads and dims.
    Returns one tensor a field, [B, W*tokens_per_page, heads, dim] in ``dtype``: 0 where the row is not below the length
    or its page is -1, whatever bytes lie there.
    Errors: KVC551 shapes, dtypes, fields that do not add up to page_bytes; KVC552 page outside the pool or length
    beyond the table; KVC554 encoding. Source: docs/semantics.md.
    """
    row = row_format("gather_rows", encoding, row_fields(fields, heads, dims))
    held = page_table >= 0
    first = torch.arange(page_table.shape[1], device=pool.device) * tokens_per_page
    own = (lengths[:, None] - first)[held]  # rows of each held page that are below the length
    read = torch.arange(tokens_per_page, device=pool.device) < own[:, None]
    views = plane_views(pool.index_select(0, page_table[held]), row.layout(tokens_per_page))
    gathered = []
    for value, head, dim in zip(row.decode(views, scales), heads, dims, strict=True):
        out = pool.new_zeros((*page_table.shape, tokens_per_page, head, dim), dtype=dtype)
        out[held] = value.to(dtype).transpose(1, 2).masked_fill(~read[..., None, None], 0)
        gathered.append(out.flatten(1, 2))
    return gathered
