"""Example inputs of mixed caches, beside those of `example_inputs`: a history and a twin of the same K and V."""

from dataclasses import replace
from typing import Any

import torch

from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import Shape, scale_for

ENCODING = "bf16"  # of the twin
FIRST, LAST = 3, 6
RETAINED: dict[str, Any] = {"first": FIRST, "last": LAST, "unit": "token"}
KV_FIELDS = ["k", "v"]


def table(shape: Shape) -> torch.Tensor:
    """Page ids int32 ``[B, W]`` of the twin: -1 between the pages of the first and of the last retained rows."""
    entries, size = inputs.page_table(shape), shape.tokens_per_page
    for row, committed in zip(entries, shape.committed, strict=True):
        row[-(-FIRST // size) : max(0, committed - LAST) // size] = -1
    return entries


def scales(encoding: str) -> list[torch.Tensor | None]:
    """Scale operands of K and V."""
    return [scale_for(encoding, "k"), scale_for(encoding, "v")]


def pool(shape: Shape) -> torch.Tensor:
    """A twin that holds K and V of every row; its table says which of them count."""
    return inputs.pool(replace(shape, encoding=ENCODING))


def sizes(shape: Shape) -> dict[str, Any]:
    """Attributes that name the fields of a row."""
    return {"fields": KV_FIELDS, "heads": [shape.kv_heads] * 2, "dims": [shape.head_dim, shape.v_head_dim]}


def gathered(shape: Shape) -> list[torch.Tensor]:
    """K and V as kvc::gather_rows reads them from the history."""
    args = inputs.pool(shape), inputs.page_table(shape), inputs.lengths(shape), scales(shape.encoding)
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "dtype": shape.dtype}
    return torch.ops.kvc.gather_rows.default(*args, **how, **sizes(shape))  # type: ignore[no-any-return]


def empty_staging(shape: Shape) -> list[torch.Tensor]:
    """Staging ``[B, L, heads, dim]`` of K and V full of NaN, longer than any sequence."""
    rows = len(shape.own), max(shape.lengths) + 3
    dims = shape.head_dim, shape.v_head_dim
    return [torch.full((*rows, shape.kv_heads, dim), torch.nan, dtype=shape.dtype) for dim in dims]


def staging(shape: Shape) -> list[torch.Tensor]:
    """Staging that holds K and V of the step's tokens and NaN elsewhere."""
    filled, own = empty_staging(shape), inputs.sequence_ids(shape) >= 0
    place = inputs.sequence_ids(shape)[own].long(), inputs.positions(shape)[own].long()
    for x, name in zip(filled, KV_FIELDS, strict=True):
        x[place] = inputs.activations(shape, name)[own]  # type: ignore[arg-type]
    return filled
