"""kvc::gqa_decode_gathered in Triton."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.codecs import KV, row_fields
from kvc.ops.device.decode import Gathered, decode


def gqa_decode_gathered(
    q: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    tokens_per_page: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    fields = row_fields(KV, [x.shape[2] for x in rows], [x.shape[3] for x in rows])
    gathered = Gathered(rows, page_table)
    return decode("gqa_decode_gathered", (q,), fields, gathered, lengths, tokens_per_page, softmax_scale)
