"""kvc::append_mla in Triton: one launch for the rows of both pools and for the queries."""

# mypy: ignore-errors
import torch

from kvc.ops.codecs import MLA
from kvc.ops.device.append import Rotation, Store, append


def append_mla(
    pool: torch.Tensor,
    q_rope: torch.Tensor | None,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor | None,
    rows: torch.Tensor,
    latent_scale: torch.Tensor | None,
    rope_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_rows: torch.Tensor | None = None,
    latent_twin_scale: torch.Tensor | None = None,
    rope_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    keep_k: bool,
    layout: str | None = None,
    twin_encoding: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    rotation = None if table is None else Rotation(table, positions, layout, 1)
    high = None if twin is None else Store(twin, twin_rows, twin_encoding, (latent_twin_scale, rope_twin_scale))
    store = Store(pool, rows, encoding, (latent_scale, rope_scale))
    how = {"rotation": rotation, "q": q_rope, "keep": 1 if keep_k else None}
    q, k = append("append_mla", MLA, (latent, k_rope), store, high, tokens_per_page, **how)
    nothing = (0, *k_rope.shape[1:])
    return k_rope.new_empty(nothing) if q is None else q, k_rope.new_empty(nothing) if k is None else k
