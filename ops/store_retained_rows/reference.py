"""Reference of kvc::store_retained_rows."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields, row_format
from kvc.ops.paging import write_planes
from kvc.ops.rope.reference import rotated_copy


def store_retained_rows(
    twin: torch.Tensor,
    values: Sequence[torch.Tensor],
    rows: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor | None,
    scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    rotated: str | None = None,
    layout: str | None = None,
) -> None:
    """Encode one row a token and write it to the twin, where its page is held.

    twin uint8 [P, page_bytes], written in place; values: one tensor a field, [T, heads, dim] in an activation dtype;
    rows i32 [T], write rows in the twin, -1 where it holds no page. The field named ``rotated`` comes before RoPE: it
    is rotated as kvc::rope does, by table f32 [M, R], positions i32 [T] and layout, and rounded to its dtype; None: all
    fields come as they are to be stored, and the other three are None. scales f32 [2] = [scale, factor] a field, or
    None. The bytes are those of rope, quantize and kvc::store_rows.
    Errors, all before anything is written: KVC551 shapes and dtypes, positions missing, KVC552 position or row out of
    range, KVC553 a row given twice, KVC554 encoding or layout. Source: docs/semantics.md.
    """
    turned = [
        rotated_copy(x, table, positions, layout) if name == rotated else x
        for name, x in zip(fields, values, strict=True)
    ]
    heads, dims = [x.shape[1] for x in values], [x.shape[2] for x in values]
    row = row_format("store_retained_rows", encoding, row_fields(fields, heads, dims))
    write_planes(twin, row.encode(turned, scales), rows, row.layout(tokens_per_page))
