"""Reference of kvc::gather_rows."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields, row_format
from kvc.ops.gathered import Reads, rounded


def gather_rows(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    fields: Sequence[str],
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    dtype: torch.dtype,
) -> list[torch.Tensor]:
    """Read and dequantize the rows of every sequence, or those that the tokens of a step select.

    pool uint8 [P, page_bytes]; page_table i32 [B, W] page ids, -1 not held; lengths i32 [B] in tokens; one entry a
    field in scales (f32 [2] = [scale, factor], or None), fields (names: k, v or latent, rope), heads and dims.
    selected i32 [T, K]: positions in the sequence of each token, sequence_ids i32 [T], -1 for padding; None and None
    for all rows. code_scale f32 [2] with dtype uint8: results are e4m3 codes of the fp32 values under it.
    Returns one tensor a field in ``dtype``, [B, W*tokens_per_page, heads, dim] or [T, K, heads, dim]: 0 where the row
    is not below the length or its page is -1, whatever bytes lie there; so for a selected position that is -1 or past
    the table, and for padding.
    Errors: KVC551 shapes, dtypes, fields that do not add up to page_bytes; KVC552 page outside the pool, length
    beyond the table, sequence that does not exist; KVC554 encoding. Source: docs/semantics.md.
    """
    row = row_format("gather_rows", encoding, row_fields(fields, heads, dims))

    def decode(planes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [rounded(value, dtype, code_scale) for value in row.decode(planes, scales)]

    reads = Reads(page_table, lengths, tokens_per_page, selected, sequence_ids)
    return reads.read(pool, row.layout(tokens_per_page), decode)
