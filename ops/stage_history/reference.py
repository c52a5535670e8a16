"""Reference of kvc::stage_history."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.gather_rows.reference import gather_rows
from kvc.ops.overlay_retained_rows.reference import overlay_retained_rows


def stage_history(
    staging: Sequence[torch.Tensor],
    pool: torch.Tensor,
    page_table: torch.Tensor,
    twin: torch.Tensor | None,
    twin_table: torch.Tensor | None,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    twin_scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> None:
    """Write the rows of every sequence below its length to staging, retained ones from the twin.

    staging: one tensor a field, [S, L, heads, dim] of one activation dtype, written in place; sequences at and past S
    have length 0. pool uint8 [P, page_bytes] in ``encoding``; page_table i32 [B, W], -1 not held; twin uint8
    [Q, page_bytes] in ``twin_encoding`` and twin_table i32 [B, W], or None and None for a history alone; lengths and
    committed i32 [B]; scales f32 [2] = [scale, factor] a field, or None.
    Returns nothing. Rows [0, lengths[b]) of staging are those of kvc::gather_rows in its dtype and, with a twin,
    kvc::overlay_retained_rows on them: 0 where no page is held. All other rows of staging keep their bits.
    Errors, all before anything is written: KVC551 shapes and dtypes, a sequence without staging, a twin given in part;
    KVC552 page, length or committed length out of range; KVC554 encoding or unit. Source: docs/semantics.md.
    """
    heads, dims = [x.shape[2] for x in staging], [x.shape[3] for x in staging]
    row: dict[str, Any] = {"fields": fields, "tokens_per_page": tokens_per_page}
    sizes: dict[str, Any] = {"heads": heads, "dims": dims, "dtype": staging[0].dtype}
    rows = gather_rows(pool, page_table, lengths, scales, encoding=encoding, **sizes, **row)
    if twin is not None and twin_table is not None and twin_encoding is not None:
        kept: dict[str, Any] = {"first": first, "last": last, "unit": unit, "encoding": twin_encoding}
        rows = overlay_retained_rows(rows, twin, twin_table, lengths, committed, twin_scales, **kept, **row)
    for x, values in zip(staging, rows, strict=True):
        _put(x, values, lengths)


def _put(staging: torch.Tensor, values: torch.Tensor, lengths: torch.Tensor) -> None:
    """``values`` in staging below the lengths; each of both may have more sequences and rows than the other."""
    sequences, span = (min(staging.shape[axis], values.shape[axis]) for axis in (0, 1))
    below = torch.arange(span, device=lengths.device) < lengths[:sequences, None]
    staging[:sequences, :span][below] = values[:sequences, :span][below]
