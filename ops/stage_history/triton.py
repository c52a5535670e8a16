"""kvc::stage_history in Triton: gather and overlay straight into staging, one launch."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields
from kvc.ops.device.gather import Kept, Source, gather


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
    """As the reference."""
    sizes = row_fields(fields, [x.shape[2] for x in staging], [x.shape[3] for x in staging])
    history = Source(pool, page_table, encoding, scales)
    high = None if twin is None else Source(twin, twin_table, twin_encoding, twin_scales)
    kept = None if twin is None else Kept(committed, first, last, unit)
    how = {"kept": kept, "below_only": True}
    gather("stage_history", sizes, staging, history, high, lengths, tokens_per_page, **how)
