"""Definition, checks and fake kernel of kvc::overlay_retained_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, same_dtype, wrong
from kvc.ops.codecs.rows import check_scales
from kvc.ops.paging import check_encoded_pool
from kvc.ops.retained import check_retained
from kvc.ops.values import check_range

DEFINITION = (
    "overlay_retained_rows(Tensor[] rows, Tensor twin, Tensor twin_table, Tensor lengths, Tensor committed, "
    "Tensor?[] twin_scales, *, str encoding, str[] fields, int tokens_per_page, int first, int last, str unit) "
    "-> Tensor[]"
)
TWIN = (
    Operand("twin", "P page_bytes", BYTES),
    Operand("twin_table", "B W", INT32),
    Operand("lengths", "B", INT32),
    Operand("committed", "B", INT32),
)


def check(
    rows: Sequence[torch.Tensor],
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    twin_scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    first: int,
    last: int,
    unit: str,
) -> dict[str, Any]:
    """Check shapes and dtypes, and that the fields make up the twin's pages; return the sizes."""
    op = "overlay_retained_rows"
    if not len(rows) == len(fields) == len(twin_scales):
        raise wrong(op, "fields", f"names {len(fields)} fields, rows {len(rows)}, twin_scales {len(twin_scales)}")
    names = [f"rows[{i}]" for i in range(len(rows))]
    operands = [Operand(name, f"B L heads{i} dim{i}", ACTIVATIONS) for i, name in enumerate(names)]
    operands += [Operand(f"twin_scales[{i}]", "2", FLOAT32, optional=True) for i in range(len(rows))]
    sizes = bind(op, (*TWIN, *operands), (twin, twin_table, lengths, committed, *rows, *twin_scales))
    same_dtype(op, dict(zip(names, rows, strict=True)))
    check_retained(op, first, last, unit)
    places = (f"twin_scales[{i}]" for i in range(len(twin_scales)))
    check_scales(op, encoding, list(zip(fields, places, twin_scales, strict=True)))
    heads, dims = ([sizes[f"{name}{i}"] for i in range(len(rows))] for name in ("heads", "dim"))
    check_encoded_pool(op, twin, encoding, fields, heads, dims, tokens_per_page, argument="twin")
    return sizes


def check_values(
    rows: Sequence[torch.Tensor],
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    *rest: Any,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Pages lie in the twin; lengths in the rows and the table, committed lengths in them."""
    op = "overlay_retained_rows"
    longest = min(rows[0].shape[1], twin_table.shape[1] * tokens_per_page)
    check_range(op, "twin_table", twin_table, -1, twin.shape[0])
    check_range(op, "lengths", lengths, 0, longest + 1)
    check_range(op, "committed", committed, 0, longest + 1)


def fake(rows: Sequence[torch.Tensor], *rest: Any, **_: Any) -> list[torch.Tensor]:
    """Empty results."""
    return [x.new_empty(x.shape) for x in rows]
