"""Reference of kvc::gqa_context."""

import torch

from kvc.ops.attention import State, attend
from kvc.ops.codecs import KV, row_fields, row_format
from kvc.ops.history import History, Rows, with_twin
from kvc.ops.retained import Retained


def gqa_context(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    committed: torch.Tensor,
    query_starts: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_table: torch.Tensor | None = None,
    k_twin_scale: torch.Tensor | None = None,
    v_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    softmax_scale: float,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of context tokens over their sequence's cached rows and this step's own rows.

    q [T, H, D], k [T, Hk, D] and v [T, Hk, V] in activation dtypes, after RoPE, H a multiple of Hk; pool uint8
    [P, page_bytes]; page_table i32 [B, W]; committed i32 [B]: rows ``[0, committed[b])`` are read from the pool, those
    on pages that are -1 take no part; query_starts i32 [B+1]: sequence b owns tokens ``[starts[b], starts[b+1])``,
    whose K and V come from k and v, never from the pool; scales f32 [2] or None; softmax_scale multiplies the scores.
    With a twin (uint8 [Q, twin_bytes] in twin_encoding, scales of its own, twin_table i32 [B, W]) rows
    that are retained and held there are read from it instead, as kvc::overlay_retained_rows says (``first``, ``last``,
    ``unit``).
    Returns out [T, H, V] in q's dtype and lse f32 [T, H], the natural log-sum-exp of the scaled scores. Tokens from
    query_starts[-1] on are padding: out 0, lse -inf. All arithmetic is fp32. A sequence's result does not depend on the
    other sequences of the batch.
    Errors: KVC551 shapes and dtypes, KVC552 values out of range, KVC554 encoding.
    Source: docs/semantics.md.
    """
    row = row_format("gqa_context", encoding, row_fields(KV, (k.shape[1],) * 2, (k.shape[2], v.shape[2])))
    history = History(pool, page_table, row, (k_scale, v_scale), tokens_per_page)
    retained, scales = Retained(first, last, unit, tokens_per_page), (k_twin_scale, v_twin_scale)
    rows = with_twin(history, twin, twin_table, committed, scales, twin_encoding, retained)
    return attend_after(rows, q, k, v, committed, query_starts, softmax_scale)


def attend_after(
    cached_rows: Rows,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    committed: torch.Tensor,
    query_starts: torch.Tensor,
    softmax_scale: float,
) -> State:
    """Attention of own rows over the cached ones and themselves; operands and results as those of kvc::gqa_context."""
    out = q.new_zeros((*q.shape[:2], v.shape[2]))
    lse = q.new_full(q.shape[:2], -torch.inf, dtype=torch.float32)
    starts = query_starts.tolist()
    for b, (cached, start, end) in enumerate(zip(committed.tolist(), starts[:-1], starts[1:], strict=True)):
        if start == end:
            continue
        keys, values = (x[start:end].float().transpose(0, 1) for x in (k, v))
        seen = 0
        if cached:
            (old_keys, old_values), _ = cached_rows.read(b, 0, cached)
            seen = old_keys.shape[1]
            keys, values = torch.cat((old_keys, keys), 1), torch.cat((old_values, values), 1)
        visible = list(range(seen + 1, seen + 1 + end - start))
        out[start:end], lse[start:end] = attend(q[start:end], keys, values, visible, softmax_scale)
    return out, lse
