"""kvc::append_gqa in Triton: one launch for the rows of both pools and for the queries."""

# mypy: ignore-errors
import torch

from kvc.ops.codecs import KV
from kvc.ops.device.append import Rotation, Store, append


def append_gqa(
    pool: torch.Tensor,
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor | None,
    rows: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_rows: torch.Tensor | None = None,
    k_twin_scale: torch.Tensor | None = None,
    v_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    keep_k: bool,
    layout: str | None = None,
    twin_encoding: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    rotation = None if table is None else Rotation(table, positions, layout, 0)
    high = None if twin is None else Store(twin, twin_rows, twin_encoding, (k_twin_scale, v_twin_scale))
    store = Store(pool, rows, encoding, (k_scale, v_scale))
    how = {"rotation": rotation, "q": q, "keep": 0 if keep_k else None}
    turned, kept = append("append_gqa", KV, (k, v), store, high, tokens_per_page, **how)
    nothing = (0, *k.shape[1:])
    return k.new_empty(nothing) if turned is None else turned, k.new_empty(nothing) if kept is None else kept
