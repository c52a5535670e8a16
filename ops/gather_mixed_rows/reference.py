"""Reference of kvc::gather_mixed_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.gather_rows.reference import gather_rows
from kvc.ops.overlay_retained_rows.reference import overlay_retained_rows


def gather_mixed_rows(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    twin_scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    twin_encoding: str,
    fields: Sequence[str],
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    first: int,
    last: int,
    unit: str,
    dtype: torch.dtype,
) -> list[torch.Tensor]:
    """Read and dequantize the rows of every sequence, retained ones from the twin: gather, then overlay, in one op.

    pool uint8 [P, page_bytes] in ``encoding`` and twin uint8 [Q, page_bytes] in ``twin_encoding``, pages of the same
    tokens; page_table and twin_table i32 [B, W], -1 not held; lengths and committed i32 [B]; scales f32 [2] = [scale,
    factor] a field, or None; selected i32 [T, K], sequence_ids i32 [T] and code_scale f32 [2] as of kvc::gather_rows,
    codes with a twin in fp8 under that scale. Which rows are retained is said by kvc::overlay_retained_rows.
    Returns one tensor a field, [B, W*tokens_per_page, heads, dim] or [T, K, heads, dim] in ``dtype``: the twin's value,
    or its byte, where a row is below the length, retained and held there, else the history's as kvc::gather_rows reads
    it.
    Errors: KVC551 shapes and dtypes, KVC552 page, length or sequence out of range, KVC554 encoding or unit, KVC555
    codes of a twin under another scale. Source: docs/semantics.md.
    """
    sizes: dict[str, Any] = {"heads": heads, "dims": dims, "dtype": dtype, "encoding": encoding}
    kept: dict[str, Any] = {"first": first, "last": last, "unit": unit, "encoding": twin_encoding}
    row: dict[str, Any] = {"fields": fields, "tokens_per_page": tokens_per_page}
    row |= {"selected": selected, "sequence_ids": sequence_ids, "code_scale": code_scale}
    low = gather_rows(pool, page_table, lengths, scales, **sizes, **row)
    return overlay_retained_rows(low, twin, twin_table, lengths, committed, twin_scales, **kept, **row)
