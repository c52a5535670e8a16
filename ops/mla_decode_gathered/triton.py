"""kvc::mla_decode_gathered in Triton."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.codecs import MLA, row_fields
from kvc.ops.device.decode import Gathered, decode


def mla_decode_gathered(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    tokens_per_page: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    fields = row_fields(MLA, (1, 1), [x.shape[3] for x in rows])
    queries, gathered = (q_latent, q_rope), Gathered(rows, page_table)
    return decode("mla_decode_gathered", queries, fields, gathered, lengths, tokens_per_page, softmax_scale)
