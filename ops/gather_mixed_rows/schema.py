"""Definition, checks and fake kernel of kvc::gather_mixed_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import BYTES, FLOAT32, INT32, Operand, bind, wrong
from kvc.ops.codecs.rows import check_scales
from kvc.ops.gathered import (
    SELECTION,
    SELECTION_DEFINITION,
    check_copied_codes,
    check_one_scale,
    check_result,
    check_selection,
    check_sequence_ids,
    gathered_shape,
)
from kvc.ops.paging import check_encoded_pool
from kvc.ops.retained import check_retained
from kvc.ops.values import check_range

NAME = "gather_mixed_rows"
DEFINITION = (
    f"{NAME}(Tensor pool, Tensor page_table, Tensor twin, Tensor twin_table, Tensor lengths, Tensor committed, "
    f"Tensor?[] scales, Tensor?[] twin_scales, {SELECTION_DEFINITION}, *, str encoding, str twin_encoding, "
    "str[] fields, int[] heads, int[] dims, int tokens_per_page, int first, int last, str unit, "
    "ScalarType dtype) -> Tensor[]"
)
OPERANDS = (
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("twin", "Q twin_bytes", BYTES),
    Operand("twin_table", "B W", INT32),
    Operand("lengths", "B", INT32),
    Operand("committed", "B", INT32),
    *SELECTION,
)


def check(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    twin: torch.Tensor,
    twin_table: torch.Tensor,
    lengths: torch.Tensor,
    committed: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    twin_scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    twin_encoding: str,
    fields: Sequence[str],
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    first: int,
    last: int,
    unit: str,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Check shapes and dtypes, and that the fields make up the pages of both pools; return the sizes."""
    counts = {len(fields), len(heads), len(dims), len(scales), len(twin_scales)}
    if len(counts) > 1:
        raise wrong(NAME, "fields", f"differ in number: {sorted(counts)} of fields, heads, dims and scales")
    named = {"scales": (encoding, scales), "twin_scales": (twin_encoding, twin_scales)}
    operands = [Operand(f"{name}[{i}]", "2", FLOAT32, optional=True) for name in named for i in range(len(fields))]
    chosen = selected, sequence_ids, code_scale
    tensors = (pool, page_table, twin, twin_table, lengths, committed, *chosen, *scales, *twin_scales)
    sizes = bind(NAME, (*OPERANDS, *operands), tensors)
    check_selection(NAME, selected, sequence_ids)
    check_result(NAME, dtype, code_scale)
    check_copied_codes(NAME, twin_encoding, "twin_encoding", code_scale)
    for name, (stored_as, given) in named.items():
        places = (f"{name}[{i}]" for i in range(len(given)))
        check_scales(NAME, stored_as, list(zip(fields, places, given, strict=True)))
    check_retained(NAME, first, last, unit)
    check_encoded_pool(NAME, pool, encoding, fields, heads, dims, tokens_per_page)
    check_encoded_pool(NAME, twin, twin_encoding, fields, heads, dims, tokens_per_page, argument="twin")
    return sizes


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Pages lie in their pools, lengths in the tables; codes have one scale."""
    pool, page_table, twin, twin_table, lengths, committed, _scales, twin_scales = tensors[:8]
    _selected, sequence_ids, code_scale = (*tensors[8:], None, None, None)[:3]
    check_range(NAME, "page_table", page_table, -1, pool.shape[0])
    check_range(NAME, "twin_table", twin_table, -1, twin.shape[0])
    longest = page_table.shape[1] * tokens_per_page
    check_range(NAME, "lengths", lengths, 0, longest + 1)
    check_range(NAME, "committed", committed, 0, longest + 1)
    check_sequence_ids(NAME, sequence_ids, page_table.shape[0])
    check_one_scale(NAME, twin_scales, code_scale)


def fake(
    *tensors: Any, heads: Sequence[int], dims: Sequence[int], tokens_per_page: int, dtype: torch.dtype, **_: Any
) -> list[torch.Tensor]:
    """Empty results."""
    pool, page_table, selected = (*tensors[:2], *tensors[8:9], None)[:3]
    rows = gathered_shape(page_table, selected, tokens_per_page)
    return [pool.new_empty((*rows, *size), dtype=dtype) for size in zip(heads, dims, strict=True)]
