"""kvc::mla_context_gathered in Triton: kvc::mla_context over rows that were gathered before."""

# mypy: ignore-errors
from collections.abc import Sequence

import torch

from kvc.ops.device.decode import Gathered
from kvc.ops.mla_context.triton import attend_after


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
    """As the reference."""

    def rows_of(sequence: int, start: int, stop: int) -> Gathered:
        """Latent and rope of cached positions in the activation dtype, ``[1, n, 1, dim]`` each."""
        some = [x[sequence : sequence + 1, start:stop].to(w_uk.dtype) for x in rows]
        return Gathered(some, page_table[sequence : sequence + 1, start // tokens_per_page :])

    scales, own = (q_scale, k_scale, v_scale), (k, v, v_layout)
    step = committed, query_starts, tokens_per_page, chunk_tokens, softmax_scale
    return attend_after(rows_of, (q_nope, q_rope), own, (w_uk, w_uv), scales, *step)
