"""Reference of kvc::gqa_decode."""

import torch

from kvc.ops.attention import History, attend
from kvc.ops.codecs import KV, row_fields, row_format


def gqa_decode(
    q: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    *,
    encoding: str,
    tokens_per_page: int,
    kv_heads: int,
    v_head_dim: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of n query tokens a sequence over the paged history, which holds this step's rows already.

    q [T, H, D] in an activation dtype after RoPE, T = B*n, sequence by sequence; pool uint8 [P, page_bytes];
    page_table i32 [B, W]; lengths i32 [B], this step's rows included; scales f32 [2] or None; softmax_scale multiplies
    the scores. Causal from the bottom right: query i of a sequence sees rows ``[0, length - n + i]``; rows on pages
    that are -1 take no part.
    Returns out [T, H, v_head_dim] in q's dtype and lse f32 [T, H], the natural log-sum-exp of the scaled scores; a
    query that sees no row, as in a sequence of length 0, gets 0 and -inf. All arithmetic is fp32. A sequence's result
    does not depend on the other sequences of the batch, and bytes of rows that it does not see change nothing.
    Errors: KVC551 shapes and dtypes, KVC552 values out of range, KVC554 encoding.
    Source: docs/semantics.md.
    """
    out = q.new_zeros((*q.shape[:2], v_head_dim))
    lse = q.new_full(q.shape[:2], -torch.inf, dtype=torch.float32)
    row = row_format("gqa_decode", encoding, row_fields(KV, (kv_heads,) * 2, (q.shape[2], v_head_dim)))
    history = History(pool, page_table, row, (k_scale, v_scale), tokens_per_page)
    queries = q.shape[0] // max(1, lengths.shape[0])
    for b, length in enumerate(lengths.tolist()):
        if length and queries:
            (keys, values), held = history.read(b, 0, length)
            visible = [held(length - queries + i + 1) for i in range(queries)]
            own = slice(b * queries, (b + 1) * queries)
            out[own], lse[own] = attend(q[own], keys, values, visible, softmax_scale)
    return out, lse
