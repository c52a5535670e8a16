"""kvc::mla_decode_gathered in Triton: the kernel of kvc::mla_decode over rows that were gathered before."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.mla_decode.triton import Kept, attend


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
    return attend(q_latent, q_rope, None, None, Kept(), rows, page_table, lengths, tokens_per_page, softmax_scale)
