"""Reference of kvc::overlay_retained_rows."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields, row_format
from kvc.ops.gathered import Reads
from kvc.ops.retained import Retained


def overlay_retained_rows(
    rows: Sequence[torch.Tensor],
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    twin_scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
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
    selected i32 [T, K] and sequence_ids i32 [T]: what was gathered, rows [T, K, heads, dim]. code_scale f32 [2]: rows
    are e4m3 codes (uint8) under it, and so are the bytes of the twin, which is in fp8.
    Returns new tensors of the same shapes: the twin's value in the rows' dtype, or its bytes, where a row is below the
    length, retained and held, else the row given.
    Errors: KVC551 shapes and dtypes, KVC552 page, length or sequence out of range, KVC554 encoding or unit, KVC555
    codes of a twin under another scale. Source: docs/semantics.md.
    """
    heads, dims = [x.shape[2] for x in rows], [x.shape[3] for x in rows]
    row = row_format("overlay_retained_rows", encoding, row_fields(fields, heads, dims))

    def decode(planes: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        if code_scale is not None:
            return planes  # fp8: one plane a field, of codes
        return [value.to(rows[0].dtype) for value in row.decode(planes, twin_scales)]

    reads = Reads(twin_table, lengths, tokens_per_page, selected, sequence_ids)
    taken = reads.mask & Retained(first, last, unit, tokens_per_page).covers(
        reads.positions, reads.of_sequence(committed)
    )
    high = reads.read(twin, row.layout(tokens_per_page), decode)
    return [_over(x, values, taken) for x, values in zip(rows, high, strict=True)]


def _over(x: torch.Tensor, values: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """``x`` with ``values`` where they are taken; the shorter of both may be a prefix of the other."""
    span, over = min(x.shape[1], values.shape[1]), x.clone()
    over[:, :span][taken[:, :span]] = values[:, :span][taken[:, :span]]
    return over
