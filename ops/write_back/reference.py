"""Reference of kvc::write_back."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields, row_format
from kvc.ops.paging import write_planes


def write_back(
    pool: torch.Tensor,
    twin: torch.Tensor | None,
    staging: Sequence[torch.Tensor],
    positions: torch.Tensor | None,
    sequence_ids: torch.Tensor | None,
    rows: torch.Tensor,
    twin_rows: torch.Tensor | None,
    scales: Sequence[torch.Tensor | None],
    twin_scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    twin_encoding: str | None = None,
) -> None:
    """Encode a step's own rows, found in staging, and write them to the history and to its twin.

    pool uint8 [P, page_bytes] in ``encoding`` and twin uint8 [Q, page_bytes] in ``twin_encoding``, or None, written in
    place; staging: one tensor a field, [S, L, heads, dim] of one activation dtype, as they are to be stored (after
    RoPE); positions and sequence_ids i32 [T]: the row of token t is staging[sequence_ids[t], positions[t]]; rows i32
    [T] and twin_rows i32 [T], which goes with twin: write rows in each pool, -1 writes nothing there; a token that
    writes nothing may have any position and sequence. scales f32 [2] = [scale, factor] a field, or None.
    The bytes of both pools are those of quantize, kvc::store_rows and kvc::store_retained_rows.
    Returns nothing.
    Errors, all before anything is written to either pool: KVC551 shapes and dtypes, positions missing, a twin given in
    part; KVC552 a write row outside its pool, a place outside staging; KVC553 a row given twice; KVC554 encoding.
    Source: docs/semantics.md.
    """
    own = _rows_of(staging, positions, sequence_ids, written(rows, twin_rows))
    sizes = row_fields(fields, [x.shape[2] for x in staging], [x.shape[3] for x in staging])
    stores = (pool, rows, encoding, scales), (twin, twin_rows, twin_encoding, twin_scales)
    for into, where, name, operands in stores:
        if into is not None and where is not None and name is not None:
            row = row_format("write_back", name, sizes)
            write_planes(into, row.encode(own, operands), where, row.layout(tokens_per_page))


def written(rows: torch.Tensor, twin_rows: torch.Tensor | None) -> torch.Tensor:
    """bool ``[T]``: tokens that are written to a pool at least."""
    return rows >= 0 if twin_rows is None else (rows >= 0) | (twin_rows >= 0)


def _rows_of(
    staging: Sequence[torch.Tensor],
    positions: torch.Tensor | None,
    sequence_ids: torch.Tensor | None,
    taken: torch.Tensor,
) -> list[torch.Tensor]:
    """Own rows ``[T, heads, dim]`` a field, 0 for tokens that are not taken."""
    if positions is None or sequence_ids is None:
        raise TypeError("the schema refuses calls without positions")
    place = sequence_ids[taken].long(), positions[taken].long()
    own = [x.new_zeros((len(taken), *x.shape[2:])) for x in staging]
    for values, x in zip(own, staging, strict=True):
        values[taken] = x[place]
    return own
