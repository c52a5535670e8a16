"""Reference of kvc::mla_context_gathered."""

from collections.abc import Sequence

import torch

from kvc.ops.history import GatheredRows
from kvc.ops.mla_context.reference import ExpandedRows, attend_after


def mla_context_gathered(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    committed: torch.Tensor,
    query_starts: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    q_scale: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    *,
    tokens_per_page: int,
    chunk_tokens: int,
    softmax_scale: float,
    v_layout: str = "rows",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention over gathered latent rows and own rows (expanded MLA): kvc::mla_context without the reading.

    q_nope [T, H, N], q_rope [T, H, R], k [T, H, N + R], v [T, H, V] or transposed, committed, query_starts, the
    weights, the scales of Q, K and V, ``chunk_tokens`` and ``v_layout`` as in kvc::mla_context; rows: latent
    [B, L, 1, C] and rope [B, L, 1, R] of one activation dtype, as kvc::gather_rows gives them; page_table i32 [B, W],
    L = W * ``tokens_per_page``: rows on pages that are -1 take no part.
    Returns out [T, H, V] and lse f32 [T, H], as kvc::mla_context does; over rows gathered in fp32, its bits.
    Errors: KVC551 shapes, strides and dtypes, KVC552 values out of range, KVC554 layout. Source: docs/semantics.md.
    """
    gathered = GatheredRows(rows, page_table, tokens_per_page)
    cached = ExpandedRows(gathered, (w_uk, w_uv), (k_scale, v_scale), chunk_tokens)
    return attend_after(cached, (q_nope, q_rope), k, v, committed, query_starts, q_scale, softmax_scale, v_layout)
