"""Definition, checks and fake kernel of kvc::append_gqa."""

from typing import Any

import torch

from kvc.ops import mixed
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind
from kvc.ops.codecs.rows import KV, check_codes, check_scales
from kvc.ops.rope.schema import check_optional_rotation, check_rotation
from kvc.ops.values import check_range, check_write_rows

SCALES = mixed.twin_scales(KV)
TWIN = (mixed.TWIN, mixed.TWIN_ROWS, *SCALES)
DEFINITION = (
    "append_gqa(Tensor(a!) pool, Tensor? q, Tensor k, Tensor v, Tensor? table, Tensor? positions, Tensor rows, "
    "Tensor? k_scale, Tensor? v_scale, Tensor(b!)? twin=None, Tensor? twin_rows=None"
    f"{mixed.declared(SCALES)}, *, str encoding, int tokens_per_page, bool keep_k, str? layout=None, "
    "str? twin_encoding=None) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("pool", "P page_bytes", BYTES),
    Operand("q", "T H D", ACTIVATIONS, optional=True),
    Operand("k", "T Hk D", ACTIVATIONS),
    Operand("v", "T Hk V", ACTIVATIONS | BYTES),
    Operand("table", "M R", FLOAT32, optional=True),
    Operand("positions", "T", INT32, optional=True),
    Operand("rows", "T", INT32),
    Operand("k_scale", "2", FLOAT32, optional=True),
    Operand("v_scale", "2", FLOAT32, optional=True),
    *TWIN,
)


def check(
    *tensors: Any,
    encoding: str,
    tokens_per_page: int,
    keep_k: bool,
    layout: str | None = None,
    twin_encoding: str | None = None,
) -> dict[str, Any]:
    """Check shapes, dtypes, encodings and layout; return the sizes."""
    named = mixed.named(OPERANDS, tensors)
    sizes = bind("append_gqa", OPERANDS, list(named.values()))
    check_optional_rotation("append_gqa", tensors[4], tensors[5], layout)
    check_scales("append_gqa", encoding, [("k", "k_scale", tensors[7]), ("v", "v_scale", tensors[8])])
    check_codes("append_gqa", encoding, "v", "v", tensors[3])
    if layout is not None:
        check_rotation("append_gqa", sizes["R"], sizes["D"], layout)
    row = mixed.RowSizes(KV, (sizes["Hk"],) * 2, (sizes["D"], sizes["V"]))
    mixed.check_pools("append_gqa", row, named, TWIN, (encoding, twin_encoding), tokens_per_page)
    mixed.check_no_codes("append_gqa", {"v": named["v"]}, named["twin"])
    return sizes


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Positions are rows of the table; write rows lie in their pools and differ."""
    pool, _q, _k, _v, table, positions, rows = tensors[:7]
    if table is not None:
        check_range("append_gqa", "positions", positions, 0, table.shape[0])
    check_write_rows("append_gqa", rows, pool.shape[0] * tokens_per_page)
    mixed.check_twin_rows("append_gqa", mixed.named(OPERANDS, tensors), tokens_per_page)


def fake(
    pool: torch.Tensor, q: torch.Tensor | None, k: torch.Tensor, *rest: Any, keep_k: bool, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    nothing = (0, *k.shape[1:])
    return k.new_empty(nothing) if q is None else q.new_empty(q.shape), k.new_empty(k.shape if keep_k else nothing)
