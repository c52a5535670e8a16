"""kvc::gqa_decode in Triton, for every encoding and twin."""

# mypy: ignore-errors
import torch

from kvc.ops.codecs import KV, row_fields
from kvc.ops.device.decode import decode
from kvc.ops.device.gather import Kept, Source


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
    """As the reference."""
    fields = row_fields(KV, (kv_heads,) * 2, (q.shape[2], v_head_dim))
    history = Source(pool, page_table, encoding, (k_scale, v_scale))
    high = None if twin is None else Source(twin, twin_table, twin_encoding, (k_twin_scale, v_twin_scale))
    kept = None if twin is None else Kept(committed, first, last, unit)
    return decode("gqa_decode", (q,), fields, history, lengths, tokens_per_page, softmax_scale, high, kept)
