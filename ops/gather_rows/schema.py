"""Definition, checks and fake kernel of kvc::gather_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import BYTES, FLOAT32, INT32, Operand, bind, wrong
from kvc.ops.codecs.rows import check_scales
from kvc.ops.gathered import (
    SELECTION,
    SELECTION_DEFINITION,
    check_result,
    check_selection,
    check_sequence_ids,
    gathered_shape,
)
from kvc.ops.paging import check_encoded_pool
from kvc.ops.values import check_range

DEFINITION = (
    f"gather_rows(Tensor pool, Tensor page_table, Tensor lengths, Tensor?[] scales, {SELECTION_DEFINITION}, *, "
    "str encoding, str[] fields, int[] heads, int[] dims, int tokens_per_page, ScalarType dtype) -> Tensor[]"
)
OPERANDS = (
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("lengths", "B", INT32),
    *SELECTION,
)


def check(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scales: Sequence[torch.Tensor | None],
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    code_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    fields: Sequence[str],
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Check shapes and dtypes, and that the fields make up the pool's pages; return the sizes."""
    scale_operands = [Operand(f"scales[{i}]", "2", FLOAT32, optional=True) for i in range(len(scales))]
    tensors = (pool, page_table, lengths, selected, sequence_ids, code_scale, *scales)
    sizes = bind("gather_rows", (*OPERANDS, *scale_operands), tensors)
    counts = {"fields": len(fields), "heads": len(heads), "dims": len(dims), "scales": len(scales)}
    if len(set(counts.values())) > 1:
        raise wrong("gather_rows", "fields", f"differ in number: {', '.join(f'{n} {c}' for n, c in counts.items())}")
    check_selection("gather_rows", selected, sequence_ids)
    check_result("gather_rows", dtype, code_scale)
    arguments = (f"scales[{i}]" for i in range(len(scales)))
    check_scales("gather_rows", encoding, list(zip(fields, arguments, scales, strict=True)))
    check_encoded_pool("gather_rows", pool, encoding, fields, heads, dims, tokens_per_page)
    return sizes


def check_values(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scales: Any,
    selected: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    *rest: Any,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Pages lie in the pool, lengths in the table; tokens belong to a sequence or to none."""
    check_range("gather_rows", "page_table", page_table, -1, pool.shape[0])
    check_range("gather_rows", "lengths", lengths, 0, page_table.shape[1] * tokens_per_page + 1)
    check_sequence_ids("gather_rows", sequence_ids, page_table.shape[0])


def fake(
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scales: Any,
    selected: torch.Tensor | None = None,
    *rest: Any,
    heads: Sequence[int],
    dims: Sequence[int],
    tokens_per_page: int,
    dtype: torch.dtype,
    **_: Any,
) -> list[torch.Tensor]:
    """Empty results."""
    rows = gathered_shape(page_table, selected, tokens_per_page)
    return [pool.new_empty((*rows, *size), dtype=dtype) for size in zip(heads, dims, strict=True)]
