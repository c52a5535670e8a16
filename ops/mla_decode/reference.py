"""Reference of kvc::mla_decode."""

import torch

from kvc.ops.attention import History, attend
from kvc.ops.codecs import MLA, row_fields, row_format


def mla_decode(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    latent_scale: torch.Tensor | None,
    rope_scale: torch.Tensor | None,
    *,
    encoding: str,
    tokens_per_page: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of n query tokens a sequence over latent rows, which hold this step's rows already (absorbed MLA).

    All heads share one row: K is [latent | rope], V is the latent. q_latent [T, H, C] = q_nope @ W_UK of the head and
    q_rope [T, H, R] after RoPE, of one activation dtype, T = B*n, sequence by sequence; pool uint8 [P, page_bytes];
    page_table i32 [B, W]; lengths i32 [B], this step's rows included; scales f32 [2] or None; softmax_scale multiplies
    the scores. Causal from the bottom right: query i of a sequence sees rows ``[0, length - n + i]``; rows on pages
    that are -1 take no part.
    Returns out [T, H, C] in that dtype, to be expanded by W_UV, and lse f32 [T, H], the natural log-sum-exp of the
    scaled scores; a query that sees no row gets 0 and -inf. All arithmetic is fp32. A sequence's result does not
    depend on the other sequences of the batch, and bytes of rows that it does not see change nothing.
    Errors: KVC551 shapes and dtypes, KVC552 values out of range, KVC554 encoding.
    Source: docs/semantics.md; absorption as in arXiv 2405.04434.
    """
    out = q_latent.new_zeros(q_latent.shape)
    lse = q_latent.new_full(q_latent.shape[:2], -torch.inf, dtype=torch.float32)
    row = row_format("mla_decode", encoding, row_fields(MLA, (1, 1), (q_latent.shape[2], q_rope.shape[2])))
    history = History(pool, page_table, row, (latent_scale, rope_scale), tokens_per_page)
    q, queries = torch.cat((q_latent, q_rope), -1), q_latent.shape[0] // max(1, lengths.shape[0])
    for b, length in enumerate(lengths.tolist()):
        if length and queries:
            (latent, rope), held = history.read(b, 0, length)
            visible = [held(length - queries + i + 1) for i in range(queries)]
            own = slice(b * queries, (b + 1) * queries)
            out[own], lse[own] = attend(q[own], torch.cat((latent, rope), -1), latent, visible, softmax_scale)
    return out, lse
