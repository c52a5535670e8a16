"""kvc::write_back in Triton: rows of staging, encoded for both pools in one launch."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.device.append import Store, append


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
    """As the reference."""
    store = Store(pool, rows, encoding, scales)
    high = None if twin is None else Store(twin, twin_rows, twin_encoding, twin_scales)
    how = {"places": sequence_ids, "positions": positions}
    append("write_back", fields, staging, store, high, tokens_per_page, **how)
