"""kvc::gqa_context_gathered in Triton, one launch."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.codecs import KV, row_fields
from kvc.ops.device.context import Own, attend
from kvc.ops.device.decode import Gathered


def gqa_context_gathered(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    committed: torch.Tensor,
    query_starts: torch.Tensor,
    *,
    tokens_per_page: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    fields = row_fields(KV, (k.shape[1],) * 2, (k.shape[2], v.shape[2]))
    step = committed, query_starts, tokens_per_page, softmax_scale, q.dtype
    return attend("gqa_context_gathered", q, fields, Own(k, v), Gathered(rows, page_table), *step)
