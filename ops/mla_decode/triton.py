"""kvc::mla_decode in Triton, for every encoding and twin."""

# mypy: ignore-errors
import torch

from kvc.ops.codecs import MLA, row_fields
from kvc.ops.device.decode import decode
from kvc.ops.device.gather import Kept, Source


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
    """As the reference."""
    fields = row_fields(MLA, (1, 1), (q_latent.shape[2], q_rope.shape[2]))
    queries, history = (q_latent, q_rope), Source(pool, page_table, encoding, (latent_scale, rope_scale))
    high = None if twin is None else Source(twin, twin_table, twin_encoding, (latent_twin_scale, rope_twin_scale))
    kept = None if twin is None else Kept(committed, first, last, unit)
    return decode("mla_decode", queries, fields, history, lengths, tokens_per_page, softmax_scale, high, kept)
