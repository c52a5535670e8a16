"""Definition, checks and fake kernel of kvc::append_mla."""

from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind
from kvc.ops.codecs.rows import MLA, check_codes, check_scales
from kvc.ops.paging import check_encoded_pool
from kvc.ops.rope.schema import check_optional_rotation, check_rotation
from kvc.ops.values import check_range, check_write_rows

DEFINITION = (
    "append_mla(Tensor(a!) pool, Tensor? q_rope, Tensor latent, Tensor k_rope, Tensor? table, Tensor? positions, "
    "Tensor rows, Tensor? latent_scale, Tensor? rope_scale, *, str encoding, int tokens_per_page, bool keep_k, "
    "str? layout=None) -> (Tensor, Tensor)"
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
)


def check(
    *tensors: Any, encoding: str, tokens_per_page: int, keep_k: bool, layout: str | None = None
) -> dict[str, Any]:
    """Check shapes, dtypes, encoding and layout; return the sizes."""
    sizes = bind("append_mla", OPERANDS, tensors)
    check_optional_rotation("append_mla", tensors[4], tensors[5], layout)
    scales = [("latent", "latent_scale", tensors[7]), ("rope", "rope_scale", tensors[8])]
    check_scales("append_mla", encoding, scales)
    check_codes("append_mla", encoding, "latent", "latent", tensors[2])
    if layout is not None:
        check_rotation("append_mla", sizes["rotated"], sizes["R"], layout)
    check_encoded_pool("append_mla", tensors[0], encoding, MLA, (1, 1), (sizes["C"], sizes["R"]), tokens_per_page)
    return sizes


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Positions are rows of the table; write rows lie in the pool and differ."""
    pool, _q, _latent, _k, table, positions, rows = tensors[:7]
    if table is not None:
        check_range("append_mla", "positions", positions, 0, table.shape[0])
    check_write_rows("append_mla", rows, pool.shape[0] * tokens_per_page)


def fake(
    pool: torch.Tensor, q_rope: torch.Tensor | None, latent: torch.Tensor, k_rope: torch.Tensor, *rest: Any, **how: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    nothing = (0, *k_rope.shape[1:])
    q = k_rope.new_empty(nothing) if q_rope is None else q_rope.new_empty(q_rope.shape)
    return q, k_rope.new_empty(k_rope.shape if how["keep_k"] else nothing)
