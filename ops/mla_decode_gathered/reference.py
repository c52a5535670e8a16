"""Reference of kvc::mla_decode_gathered."""

from collections.abc import Sequence

import torch

from kvc.ops.decode import decode
from kvc.ops.history import GatheredRows
from kvc.ops.mla_decode.reference import keys_and_values


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
    """Absorbed attention of n query tokens a sequence over gathered latent rows: kvc::mla_decode without the reading.

    q_latent [T, H, C] and q_rope [T, H, R] of one activation dtype, T = B*n, sequence by sequence; rows: latent
    [B, L, 1, C] and rope [B, L, 1, R] of one activation dtype, as kvc::gather_rows gives them; page_table i32 [B, W],
    L = W * ``tokens_per_page``: rows on pages that are -1 take no part; lengths i32 [B], this step's rows included;
    softmax_scale multiplies the scores. Causal from the bottom right.
    Returns out [T, H, C] in that dtype and lse f32 [T, H], as kvc::mla_decode does; over rows gathered in fp32, its
    bits. Errors: KVC551 shapes and dtypes, KVC552 lengths out of range. Source: docs/semantics.md.
    """
    gathered, q = GatheredRows(rows, page_table, tokens_per_page), torch.cat((q_latent, q_rope), -1)
    return decode(q, gathered, lengths, q_latent.shape[2], keys_and_values, softmax_scale)
