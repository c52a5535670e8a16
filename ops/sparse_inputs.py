"""Example inputs of sparse latent attention, beside those of `mla_inputs`: an indexer's, and what tokens select."""

import torch

from kvc.encodings import Field
from kvc.ops import mla_inputs
from kvc.ops.codecs import MLA, RowFormat, row_format
from kvc.ops.example_inputs import (
    Shape,
    committed,
    lengths,
    normal,
    page_table,
    positions,
    rows,
    scale_for,
    sequence_ids,
    whole,
)
from kvc.ops.paging import write_planes

_INDEX_ENCODINGS = ("fp32", "bf16")  # of a cache, which its index keys take too; the others have `index_key`


def index_encoding(shape: Shape) -> str:
    """How the index keys of a cache are stored."""
    return shape.encoding if shape.encoding in _INDEX_ENCODINGS else "index_key"


def index_row(shape: Shape) -> RowFormat:
    """Rows of one index key."""
    return row_format("example", index_encoding(shape), (Field("key", 1, shape.index_dim),))


def index_query(shape: Shape) -> torch.Tensor:
    """Queries of the indexer after RoPE, ``[T, Hi, Di]``."""
    return normal("index_q", shape.tokens, shape.index_heads, shape.index_dim).to(shape.dtype)


def index_weights(shape: Shape) -> torch.Tensor:
    """Weights of its heads f32 ``[T, Hi]``, of both signs."""
    return normal("index_weights", shape.tokens, shape.index_heads)


def index_key(shape: Shape) -> torch.Tensor:
    """Keys ``[T, 1, Di]``."""
    return normal("index_k", shape.tokens, 1, shape.index_dim).to(shape.dtype)


def index_pool(shape: Shape) -> torch.Tensor:
    """A pool with a random key for every token that a sequence holds after this step and 0xFF in all other rows."""
    layout = index_row(shape).layout(shape.tokens_per_page)
    pool = torch.full((sum(shape.pages) + shape.spare_pages, layout.page_bytes), 0xFF, dtype=torch.uint8)
    every = whole(shape)
    write_planes(pool, index_row(shape).encode((index_key(every),), (None,)), rows(every), layout)
    return pool


def selected(shape: Shape) -> torch.Tensor:
    """Positions int32 ``[T, K]`` up to each token's own, every one once, in any order; -1 behind and for padding."""
    chosen = torch.full((shape.tokens, shape.top_k), -1, dtype=torch.int32)
    order = torch.Generator(torch.get_default_device()).manual_seed(shape.tokens)
    for row, sequence, position in zip(chosen, sequence_ids(shape), positions(shape), strict=True):
        some = torch.randperm(int(position) + 1, generator=order)[: shape.top_k if sequence >= 0 else 0]
        row[: len(some)] = some
    return chosen


def gathered(shape: Shape) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """The selected rows of every token, and the scale where they are codes: of a cache in fp8."""
    return _read(shape, lengths(shape), selected(shape))


def committed_rows(shape: Shape) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """The rows that every sequence held before this step, and the scale where they are codes."""
    return _read(shape, committed(shape), None)


def _read(
    shape: Shape, below: torch.Tensor, chosen: torch.Tensor | None
) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    scale = scale_for("fp8", "latent") if shape.encoding == "fp8" else None
    cache = mla_inputs.pool(shape), page_table(shape), below, list(mla_inputs.scales(shape))
    sizes = {"fields": list(MLA), "heads": [1, 1], "dims": [shape.latent_dim, shape.rope_dim]}
    how = {"dtype": shape.dtype if scale is None else torch.uint8, "tokens_per_page": shape.tokens_per_page, **sizes}
    of = chosen, None if chosen is None else sequence_ids(shape), scale
    return torch.ops.kvc.gather_rows.default(*cache, *of, encoding=shape.encoding, **how), scale
