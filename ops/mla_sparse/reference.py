"""Reference of kvc::mla_sparse."""

import torch

from kvc.ops.attention import attend
from kvc.ops.codecs import CODECS
from kvc.ops.gathered import page_of


def mla_sparse(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    rope: torch.Tensor,
    selected: torch.Tensor,
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    page_table: torch.Tensor,
    row_scale: torch.Tensor | None,
    *,
    rows_of: str,
    tokens_per_page: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of every token over the latent rows that it selects, gathered before (absorbed MLA).

    All heads share one row: K is [latent | rope], V is the latent. q_latent [T, H, C] = q_nope @ W_UK of the head and
    q_rope [T, H, R] after RoPE, of one activation dtype; selected i32 [T, K] positions; positions and sequence_ids i32
    [T], -1 for padding; page_table i32 [B, W] of the history; softmax_scale multiplies the scores.
    latent and rope are rows of that dtype, or e4m3 codes (uint8) under row_scale f32 [2]: of ``rows_of`` selection
    [T, K, 1, C] and [T, K, 1, R], what selected names; of sequence [B, L, 1, C] and [B, L, 1, R], by position.
    An entry counts if it is a position up to the token's own, on a page that the table holds, and the token is not
    padding. A position given twice counts twice: its row has twice the weight.
    Returns out [T, H, C] in the queries' dtype, to be expanded by W_UV, and lse f32 [T, H], the natural log-sum-exp of
    the scaled scores; a token without rows gets 0 and -inf. All arithmetic is fp32. A token's result depends on its own
    rows alone; rows that do not count change nothing. The order of entries changes no more than rounding.
    Errors: KVC551 shapes and dtypes, KVC552 position or sequence out of range, KVC554 rows_of.
    Source: docs/semantics.md; arXiv 2512.02556.
    """
    out = q_latent.new_zeros(q_latent.shape)
    lse = q_latent.new_full(q_latent.shape[:2], -torch.inf, dtype=torch.float32)
    pages = page_of(page_table, sequence_ids[:, None], selected, tokens_per_page)
    counts = (pages >= 0) & (selected <= positions[:, None])
    q = torch.cat((q_latent, q_rope), -1)
    for t in counts.any(1).nonzero().flatten().tolist():
        entries = counts[t]
        where = (t, entries) if rows_of == "selection" else (sequence_ids[t].long(), selected[t, entries].long())
        k, v = (_values(x[where], row_scale) for x in (rope, latent))
        seen = [v.shape[1]]
        out[t], lse[t] = (x[0] for x in attend(q[t : t + 1], torch.cat((v, k), -1), v, seen, softmax_scale))
    return out, lse


def _values(rows: torch.Tensor, row_scale: torch.Tensor | None) -> torch.Tensor:
    """Rows ``[n, 1, dim]`` in fp32, head by head."""
    values = rows.float() if row_scale is None else CODECS["fp8"].decode((rows,), row_scale)
    return values.transpose(0, 1)
