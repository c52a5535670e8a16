"""kvc::overlay_retained_rows in Triton, one launch."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.codecs import row_fields
from kvc.ops.device.gather import Kept, Selection, Source, gather


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
    """As the reference."""
    outs = [x.new_empty(x.shape) for x in rows]
    selection = None if selected is None else Selection(selected.contiguous(), sequence_ids.contiguous())
    source = Source(twin, twin_table, encoding, twin_scales)
    sizes = row_fields(fields, [x.shape[2] for x in rows], [x.shape[3] for x in rows])
    how = {"kept": Kept(committed, first, last, unit), "selection": selection, "given": rows, "code_scale": code_scale}
    gather("overlay_retained_rows", sizes, outs, None, source, lengths, tokens_per_page, **how)
    return outs
