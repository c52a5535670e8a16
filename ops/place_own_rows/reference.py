"""Reference of kvc::place_own_rows."""

from collections.abc import Sequence

import torch

from kvc.ops.gathered import rounded


def place_own_rows(
    rows: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor],
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    code_scale: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Put a step's own rows among gathered ones, as they were computed: where the step's attention reads them.

    rows: one tensor a field, [B, L, heads, dim] of one activation dtype or, with code_scale f32 [2], e4m3 codes (uint8)
    under it; own: one tensor a field, [T, heads, dim] in an activation dtype, that of the rows where they have one;
    positions i32 [T] and sequence_ids i32 [T], -1 for padding, which is put nowhere.
    Returns new tensors of the shapes of rows: own[t] at (sequence_ids[t], positions[t]), encoded where the rows are
    codes, and the rows given everywhere else.
    Errors: KVC551 shapes and dtypes, KVC552 position or sequence out of range, KVC553 two tokens at one place.
    Source: docs/semantics.md.
    """
    token = sequence_ids >= 0
    place = sequence_ids[token].long(), positions[token].long()
    return [
        x.index_put(place, rounded(values[token].float(), x.dtype, code_scale))
        for x, values in zip(rows, own, strict=True)
    ]
