"""kvc::gqa_context in Triton: cached rows of any encoding and twin, then own rows, in one launch."""

# mypy: ignore-errors
import torch

from kvc.ops.codecs import KV, row_fields
from kvc.ops.device.context import Own, attend
from kvc.ops.device.gather import Kept, Source


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
    """As the reference."""
    fields = row_fields(KV, (k.shape[1],) * 2, (k.shape[2], v.shape[2]))
    history = Source(pool, page_table, encoding, (k_scale, v_scale))
    high = None if twin is None else Source(twin, twin_table, twin_encoding, (k_twin_scale, v_twin_scale))
    kept = None if twin is None else Kept(committed, first, last, unit)
    step = committed, query_starts, tokens_per_page, softmax_scale, q.dtype
    return attend("gqa_context", q, fields, Own(k, v), history, *step, high, kept)
