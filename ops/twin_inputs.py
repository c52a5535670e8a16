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
