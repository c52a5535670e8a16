"""Definition, checks and fake kernel of kvc::overlay_retained_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, same_dtype, wrong
from kvc.ops.codecs.rows import check_scales
from kvc.ops.gathered import (
    SELECTION,
    SELECTION_DEFINITION,
    check_copied_codes,
    check_one_scale,
    check_selection,
    check_sequence_ids,
)
from kvc.ops.paging import check_encoded_pool
from kvc.ops.retained import check_retained
from kvc.ops.values import check_range

NAME = "overlay_retained_rows"
DEFINITION = (
    f"{NAME}(Tensor[] rows, Tensor twin, Tensor twin_table, Tensor lengths, Tensor committed, "
    f"Tensor?[] twin_scales, {SELECTION_DEFINITION}, *, str encoding, str[] fields, int tokens_per_page, int first, "
    "int last, str unit) -> Tensor[]"
)
TWIN = (
    Operand("twin", "P page_bytes", BYTES),
    Operand("twin_table", "B W", INT32),
    Operand("lengths", "B", INT32),
    Operand("committed", "B", INT32),
    *SELECTION,
)


def check(
    rows: Sequence[torch.Tensor],
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    twin_scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    first: int,
    last: int,
    unit: str,
) -> dict[str, Any]:
    """Check shapes and dtypes, and that the fields make up the twin's pages; return the sizes."""
    if not len(rows) == len(fields) == len(twin_scales):
        raise wrong(NAME, "fields", f"names {len(fields)} fields, rows {len(rows)}, twin_scales {len(twin_scales)}")
    names = [f"rows[{i}]" for i in range(len(rows))]
    where, dtypes = "B L" if selected is None else "T K", ACTIVATIONS if code_scale is None else BYTES
    operands = [Operand(name, f"{where} heads{i} dim{i}", dtypes) for i, name in enumerate(names)]
    operands += [Operand(f"twin_scales[{i}]", "2", FLOAT32, optional=True) for i in range(len(rows))]
    tensors = (twin, twin_table, lengths, committed, selected, sequence_ids, code_scale, *rows, *twin_scales)
    sizes = bind(NAME, (*TWIN, *operands), tensors)
    check_selection(NAME, selected, sequence_ids)
    check_copied_codes(NAME, encoding, "encoding", code_scale)
    same_dtype(NAME, dict(zip(names, rows, strict=True)))
    check_retained(NAME, first, last, unit)
    places = (f"twin_scales[{i}]" for i in range(len(twin_scales)))
    check_scales(NAME, encoding, list(zip(fields, places, twin_scales, strict=True)))
    heads, dims = ([sizes[f"{name}{i}"] for i in range(len(rows))] for name in ("heads", "dim"))
    check_encoded_pool(NAME, twin, encoding, fields, heads, dims, tokens_per_page, argument="twin")
    return sizes


def check_values(
    rows: Sequence[torch.Tensor],
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    twin_scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Pages lie in the twin; lengths in the rows and the table, committed lengths in them; codes have one scale."""
    longest = twin_table.shape[1] * tokens_per_page
    longest = min(rows[0].shape[1], longest) if selected is None else longest
    check_range(NAME, "twin_table", twin_table, -1, twin.shape[0])
    check_range(NAME, "lengths", lengths, 0, longest + 1)
    check_range(NAME, "committed", committed, 0, longest + 1)
    check_sequence_ids(NAME, sequence_ids, twin_table.shape[0])
    check_one_scale(NAME, twin_scales, code_scale)


def fake(rows: Sequence[torch.Tensor], *rest: Any, **_: Any) -> list[torch.Tensor]:
    """Empty results."""
    return [x.new_empty(x.shape) for x in rows]
