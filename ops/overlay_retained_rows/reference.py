"""Reference of kvc::overlay_retained_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.gather_rows.reference import gather_rows
from kvc.ops.retained import Retained


def overlay_retained_rows(
    rows: Sequence[torch.Tensor],
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    twin_scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    first: int,
    last: int,
    unit: str,
) -> list[torch.Tensor]:
    """Put the twin's rows over gathered ones: those that are retained and whose page the twin holds.

    rows: one tensor a field, [B, L, heads, dim] of one activation dtype, as kvc::gather_rows gives them for lengths i32
    [B]; twin uint8 [P, page_bytes] in ``encoding``; twin_table i32 [B, W], -1 not held; committed i32 [B]; twin_scales
    f32 [2] = [scale, factor] a field, or None. Retained is a position ``p < first`` or ``p >= committed - last``
    (``unit`` token), or on such a page (``unit`` page: below ``ceil(first / S)``, or from ``floor((committed - last) /
    S)`` on): a step's own rows always are.
    Returns new tensors of the same shapes: the twin's value in the rows' dtype where a row is below the length,
    retained and held, else the row given.
    Errors: KVC551 shapes and dtypes, KVC552 page or length out of range, KVC554 encoding or unit.
    Source: docs/semantics.md.
    """
    width, size = rows[0].shape[1], tokens_per_page
    heads, dims = [x.shape[2] for x in rows], [x.shape[3] for x in rows]
    sizes: dict[str, Any] = {"fields": fields, "heads": heads, "dims": dims, "tokens_per_page": size}
    high = gather_rows(twin, twin_table, lengths, twin_scales, encoding=encoding, dtype=rows[0].dtype, **sizes)
    held = (twin_table >= 0).repeat_interleave(size, 1)
    span = min(width, held.shape[1])
    taken = Retained(first, last, unit, size).mask(committed, span) & held[:, :span]
    taken &= torch.arange(span, device=twin.device) < lengths[:, None]
    over = [x.clone() for x in rows]
    for x, values in zip(over, high, strict=True):
        x[:, :span][taken] = values[:, :span][taken]
    return over
