"""Reference of kvc::mla_decode."""

import torch

from kvc.ops.codecs import MLA, row_fields, row_format
from kvc.ops.decode import decode
from kvc.ops.history import History, with_twin
from kvc.ops.retained import Retained


def mla_decode(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    latent_scale: torch.Tensor | None,
    rope_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_table: torch.Tensor | None = None,
    committed: torch.Tensor | None = None,
    latent_twin_scale: torch.Tensor | None = None,
    rope_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    softmax_scale: float,
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of n query tokens a sequence over latent rows, which hold this step's rows already (absorbed MLA).

    All heads share one row: K is [latent | rope], V is the latent. q_latent [T, H, C] = q_nope @ W_UK of the head and
    q_rope [T, H, R] after RoPE, of one activation dtype, T = B*n, sequence by sequence; pool uint8 [P, page_bytes];
    page_table i32 [B, W]; lengths i32 [B], this step's rows included; scales f32 [2] or None; softmax_scale multiplies
    the scores. Causal from the bottom right: query i of a sequence sees rows ``[0, length - n + i]``; rows on pages
    that are -1 take no part.
    With a twin (uint8 [Q, twin_bytes] in twin_encoding, scales of its own, twin_table i32 [B, W]; committed i32 [B])
    rows that are retained and held there are read from it instead, as kvc::overlay_retained_rows says (``first``,
    ``last``, ``unit``).
    Returns out [T, H, C] in that dtype, to be expanded by W_UV, and lse f32 [T, H], the natural log-sum-exp of the
    scaled scores; a query that sees no row gets 0 and -inf. All arithmetic is fp32. A sequence's result does not
    depend on the other sequences of the batch, and bytes of rows that it does not see change nothing.
    Errors: KVC551 shapes and dtypes, KVC552 values out of range, KVC554 encoding.
    Source: docs/semantics.md; absorption as in arXiv 2405.04434.
    """
    width = q_latent.shape[2]
    row = row_format("mla_decode", encoding, row_fields(MLA, (1, 1), (width, q_rope.shape[2])))
    history = History(pool, page_table, row, (latent_scale, rope_scale), tokens_per_page)
    retained, scales = Retained(first, last, unit, tokens_per_page), (latent_twin_scale, rope_twin_scale)
    rows = with_twin(history, twin, twin_table, committed, scales, twin_encoding, retained)
    return decode(torch.cat((q_latent, q_rope), -1), rows, lengths, width, keys_and_values, softmax_scale)


def keys_and_values(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """K = [latent | rope] and V = latent of the fields of rows."""
    latent, rope = rows
    return torch.cat((latent, rope), -1), latent
