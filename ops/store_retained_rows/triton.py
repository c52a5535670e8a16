"""kvc::store_retained_rows in Triton, a launch for every two fields."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.device.append import Rotation, Store, append


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
    """As the reference."""
    rotation = None if rotated is None else Rotation(table, positions, layout, list(fields).index(rotated))
    store = Store(twin, rows, encoding, scales)
    append("store_retained_rows", fields, values, store, None, tokens_per_page, rotation=rotation)
