"""Reference of kvc::gqa_decode."""

import torch

from kvc.ops.codecs import KV, row_fields, row_format
from kvc.ops.decode import decode
from kvc.ops.history import History, with_twin
from kvc.ops.retained import Retained


def gqa_decode(
    q: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_table: torch.Tensor | None = None,
    committed: torch.Tensor | None = None,
    k_twin_scale: torch.Tensor | None = None,
    v_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    kv_heads: int,
    v_head_dim: int,
    softmax_scale: float,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of n query tokens a sequence over the paged history, which holds this step's rows already.

    q [T, H, D] in an activation dtype after RoPE, T = B*n, sequence by sequence; pool uint8 [P, page_bytes];
    page_table i32 [B, W]; lengths i32 [B], this step's rows included; scales f32 [2] or None; softmax_scale multiplies
    the scores. Causal from the bottom right: query i of a sequence sees rows ``[0, length - n + i]``; rows on pages
    that are -1 take no part.
    With a twin (uint8 [Q, twin_bytes] in twin_encoding, scales of its own, twin_table i32 [B, W]; committed i32 [B])
    rows that are retained and held there are read from it instead, as kvc::overlay_retained_rows says (``first``,
    ``last``, ``unit``).
    Returns out [T, H, v_head_dim] in q's dtype and lse f32 [T, H], the natural log-sum-exp of the scaled scores; a
    query that sees no row, as in a sequence of length 0, gets 0 and -inf. All arithmetic is fp32. A sequence's result
    does not depend on the other sequences of the batch, and bytes of rows that it does not see change nothing.
    Errors: KVC551 shapes and dtypes, KVC552 values out of range, KVC554 encoding.
    Source: docs/semantics.md.
    """
    row = row_format("gqa_decode", encoding, row_fields(KV, (kv_heads,) * 2, (q.shape[2], v_head_dim)))
    history = History(pool, page_table, row, (k_scale, v_scale), tokens_per_page)
    retained, scales = Retained(first, last, unit, tokens_per_page), (k_twin_scale, v_twin_scale)
    rows = with_twin(history, twin, twin_table, committed, scales, twin_encoding, retained)
    return decode(q, rows, lengths, v_head_dim, lambda values: (values[0], values[1]), softmax_scale)
