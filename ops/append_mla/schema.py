"""Definition, checks and fake kernel of kvc::append_mla."""

from typing import Any

import torch

from kvc.ops import mixed
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind
from kvc.ops.codecs.rows import MLA, check_codes, check_scales
from kvc.ops.rope.schema import check_optional_rotation, check_rotation
from kvc.ops.values import check_range, check_write_rows

SCALES = mixed.twin_scales(MLA)
TWIN = (mixed.TWIN, mixed.TWIN_ROWS, *SCALES)
DEFINITION = (
    "append_mla(Tensor(a!) pool, Tensor? q_rope, Tensor latent, Tensor k_rope, Tensor? table, Tensor? positions, "
    "Tensor rows, Tensor? latent_scale, Tensor? rope_scale, Tensor(b!)? twin=None, Tensor? twin_rows=None"
    f"{mixed.declared(SCALES)}, *, str encoding, int tokens_per_page, bool keep_k, str? layout=None, "
    "str? twin_encoding=None) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("pool", "P page_bytes", BYTES),
    Operand("q_rope", "T H R", ACTIVATIONS, optional=True),
    Operand("latent", "T 1 C", ACTIVATIONS | BYTES),
    Operand("k_rope", "T 1 R", ACTIVATIONS),
    Operand("table", "M rotated", FLOAT32, optional=True),
    Operand("positions", "T", INT32, optional=True),
    Operand("rows", "T", INT32),
    Operand("latent_scale", "2", FLOAT32, optional=True),
    Operand("rope_scale", "2", FLOAT32, optional=True),
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
    sizes = bind("append_mla", OPERANDS, list(named.values()))
    check_optional_rotation("append_mla", tensors[4], tensors[5], layout)
    scales = [("latent", "latent_scale", tensors[7]), ("rope", "rope_scale", tensors[8])]
    check_scales("append_mla", encoding, scales)
    check_codes("append_mla", encoding, "latent", "latent", tensors[2])
    if layout is not None:
        check_rotation("append_mla", sizes["rotated"], sizes["R"], layout)
    row = mixed.RowSizes(MLA, (1, 1), (sizes["C"], sizes["R"]))
    mixed.check_pools("append_mla", row, named, TWIN, (encoding, twin_encoding), tokens_per_page)
    mixed.check_no_codes("append_mla", {"latent": named["latent"]}, named["twin"])
    return sizes


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Positions are rows of the table; write rows lie in their pools and differ."""
    pool, _q, _latent, _k, table, positions, rows = tensors[:7]
    if table is not None:
        check_range("append_mla", "positions", positions, 0, table.shape[0])
    check_write_rows("append_mla", rows, pool.shape[0] * tokens_per_page)
    mixed.check_twin_rows("append_mla", mixed.named(OPERANDS, tensors), tokens_per_page)


def fake(
    pool: torch.Tensor, q_rope: torch.Tensor | None, latent: torch.Tensor, k_rope: torch.Tensor, *rest: Any, **how: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    nothing = (0, *k_rope.shape[1:])
    q = k_rope.new_empty(nothing) if q_rope is None else q_rope.new_empty(q_rope.shape)
    return q, k_rope.new_empty(k_rope.shape if how["keep_k"] else nothing)
