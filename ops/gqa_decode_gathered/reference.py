"""Reference of kvc::gqa_decode_gathered."""

from collections.abc import Sequence

import torch

from kvc.ops.decode import decode
from kvc.ops.history import GatheredRows


def gqa_decode_gathered(
    q: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    tokens_per_page: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of n query tokens a sequence over rows that were gathered before: kvc::gqa_decode without the reading.

    q [T, H, D] in an activation dtype after RoPE, T = B*n, sequence by sequence; rows: K [B, L, Hk, D] and V
    [B, L, Hk, V] of one activation dtype, as kvc::gather_rows gives them; page_table i32 [B, W], L = W *
    ``tokens_per_page``: rows on pages that are -1 take no part; lengths i32 [B], this step's rows included;
    softmax_scale multiplies the scores. Causal from the bottom right.
    Returns out [T, H, V] in q's dtype and lse f32 [T, H], as kvc::gqa_decode does; over rows gathered in fp32, its
    bits. Errors: KVC551 shapes and dtypes, KVC552 lengths out of range. Source: docs/semantics.md.
    """
    gathered = GatheredRows(rows, page_table, tokens_per_page)
    return decode(q, gathered, lengths, rows[1].shape[3], lambda values: (values[0], values[1]), softmax_scale)
