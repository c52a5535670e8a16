"""kvc::gather_mixed_rows in Triton: gather, dequantize and overlay in one launch."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields
from kvc.ops.device.gather import Kept, Selection, Source, gather
from kvc.ops.gathered import gathered_shape


def gather_mixed_rows(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    twin_scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    twin_encoding: str,
    fields: Sequence[str],
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    first: int,
    last: int,
    unit: str,
    dtype: torch.dtype,
) -> list[torch.Tensor]:
    """As the reference."""
    rows = gathered_shape(page_table, selected, tokens_per_page)
    outs = [pool.new_empty((*rows, *size), dtype=dtype) for size in zip(heads, dims, strict=True)]
    selection = None if selected is None else Selection(selected.contiguous(), sequence_ids.contiguous())
    sources = Source(pool, page_table, encoding, scales), Source(twin, twin_table, twin_encoding, twin_scales)
    how = {"kept": Kept(committed, first, last, unit), "selection": selection, "code_scale": code_scale}
    fields_of_rows = row_fields(fields, heads, dims)
    gather("gather_mixed_rows", fields_of_rows, outs, *sources, lengths, tokens_per_page, **how)
    return outs
