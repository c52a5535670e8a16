"""Example inputs of latent attention, beside those of `example_inputs`."""

from typing import Literal

import torch

from kvc.ops.codecs import MLA, RowFormat, row_fields, row_format
from kvc.ops.example_inputs import Shape, lengths, normal, page_table, rows, scale_for, whole
from kvc.ops.paging import write_planes


def row(shape: Shape) -> RowFormat:
    """Rows of one latent and one rope."""
    return row_format("example", shape.encoding, row_fields(MLA, (1, 1), (shape.latent_dim, shape.rope_dim)))


def latent(shape: Shape) -> torch.Tensor:
    """``[T, 1, C]``."""
    return normal("latent", shape.tokens, 1, shape.latent_dim).to(shape.dtype)


def k_rope(shape: Shape) -> torch.Tensor:
    """``[T, 1, R]``."""
    return normal("k_rope", shape.tokens, 1, shape.rope_dim).to(shape.dtype)


def query(shape: Shape, part: Literal["nope", "rope", "latent"], tokens: int | None = None) -> torch.Tensor:
    """One part of the queries, ``[T, H, N]``, ``[T, H, R]`` or absorbed ``[T, H, C]``."""
    width = {"nope": shape.nope_dim, "rope": shape.rope_dim, "latent": shape.latent_dim}[part]
    return normal(f"q_{part}", shape.tokens if tokens is None else tokens, shape.heads, width).to(shape.dtype)


def weights(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """W_UK ``[H, N, C]`` and W_UV ``[H, C, V]``, views of one kv_b ``[H, N + V, C]`` as engines hold it."""
    kv_b = normal("kv_b", shape.heads, shape.nope_dim + shape.v_head_dim, shape.latent_dim) * shape.latent_dim**-0.5
    w_uk, w_uv = kv_b.to(shape.dtype).split((shape.nope_dim, shape.v_head_dim), 1)
    return w_uk, w_uv.transpose(1, 2)


def scales(shape: Shape) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Scale operands of the latent and of the rope, one where they share it."""
    return scale_for(shape.encoding, "latent"), scale_for(shape.encoding, "rope")


def empty_pool(shape: Shape) -> torch.Tensor:
    """A pool uint8 ``[P, page_bytes]`` full of 0xFF, NaN in every encoding."""
    size = row(shape).layout(shape.tokens_per_page).page_bytes
    return torch.full((sum(shape.pages) + shape.spare_pages, size), 0xFF, dtype=torch.uint8)


def pool(shape: Shape) -> torch.Tensor:
    """A pool with random rows for every token that a sequence holds after this step and 0xFF in all others."""
    filled, every = empty_pool(shape), whole(shape)
    planes = row(shape).encode((latent(every), k_rope(every)), scales(shape))
    write_planes(filled, planes, rows(every), row(shape).layout(shape.tokens_per_page))
    return filled


def cache(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """Pool and page table."""
    return pool(shape), page_table(shape)


def gathered(shape: Shape) -> list[torch.Tensor]:
    """Latent and rope of every row as kvc::gather_rows reads them, in the activation dtype."""
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "dtype": shape.dtype}
    sizes = {"fields": list(MLA), "heads": [1, 1], "dims": [shape.latent_dim, shape.rope_dim]}
    args = (*cache(shape), lengths(shape), list(scales(shape)))
    return torch.ops.kvc.gather_rows.default(*args, **how, **sizes)  # type: ignore[no-any-return]
