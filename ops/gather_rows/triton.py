"""kvc::gather_rows in Triton, one launch."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields
from kvc.ops.device.gather import Selection, Source, gather
from kvc.ops.gathered import gathered_shape


def gather_rows(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    fields: Sequence[str],
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    dtype: torch.dtype,
) -> list[torch.Tensor]:
    """As the reference."""
    rows = gathered_shape(page_table, selected, tokens_per_page)
    outs = [pool.new_empty((*rows, *size), dtype=dtype) for size in zip(heads, dims, strict=True)]
    selection = None if selected is None else Selection(selected.contiguous(), sequence_ids.contiguous())
    history = Source(pool, page_table, encoding, scales)
    how = {"selection": selection, "code_scale": code_scale}
    gather("gather_rows", row_fields(fields, heads, dims), outs, history, None, lengths, tokens_per_page, **how)
    return outs
