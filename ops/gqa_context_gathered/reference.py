"""Reference of kvc::gqa_context_gathered."""

from collections.abc import Sequence

import torch

from kvc.ops.gqa_context.reference import attend_after
from kvc.ops.history import GatheredRows


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
    """Causal attention of context tokens over gathered cached rows and own rows: kvc::gqa_context without the reading.

    q [T, H, D], k [T, Hk, D] and v [T, Hk, V] in activation dtypes, after RoPE; rows: K [B, L, Hk, D] and V
    [B, L, Hk, V] of one activation dtype, as kvc::gather_rows gives them; page_table i32 [B, W], L = W *
    ``tokens_per_page``: rows on pages that are -1 take no part; committed i32 [B]: rows ``[0, committed[b])`` are
    attended to; query_starts i32 [B+1] as in kvc::gqa_context; softmax_scale multiplies the scores.
    Returns out [T, H, V] in q's dtype and lse f32 [T, H], as kvc::gqa_context does; over rows gathered in fp32, its
    bits. Errors: KVC551 shapes and dtypes, KVC552 values out of range. Source: docs/semantics.md.
    """
    gathered = GatheredRows(rows, page_table, tokens_per_page)
    return attend_after(gathered, q, k, v, committed, query_starts, softmax_scale)
