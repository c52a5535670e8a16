"""Definition, checks and fake kernel of kvc::mla_context."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kvc.ops import mixed, transposed
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, known, same_dtype, wrong
from kvc.ops.codecs.rows import MLA, check_scales
from kvc.ops.expand_mla.schema import check_v_layout
from kvc.ops.values import check_range, check_starts

TWIN = (mixed.TWIN, mixed.TWIN_TABLE, *mixed.twin_scales(MLA))
DEFINITION = (
    "mla_context(Tensor q_nope, Tensor q_rope, Tensor k, Tensor v, Tensor pool, Tensor page_table, Tensor committed, "
    "Tensor query_starts, Tensor w_uk, Tensor w_uv, Tensor? latent_scale, Tensor? rope_scale, Tensor? q_scale, "
    f"Tensor? k_scale, Tensor? v_scale{mixed.declared(TWIN)}, *, str encoding, int tokens_per_page, int chunk_tokens, "
    f'float softmax_scale, str v_layout="rows", {mixed.READS}) -> (Tensor, Tensor)'
)
OPERANDS = (
    Operand("q_nope", "T H N", ACTIVATIONS | BYTES),
    Operand("q_rope", "T H R", ACTIVATIONS | BYTES),
    Operand("k", "T H K", ACTIVATIONS | BYTES),
    Operand("v", "T H V", ACTIVATIONS | BYTES),
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("committed", "B", INT32),
    Operand("query_starts", "B+1", INT32),
    Operand("w_uk", "H N C", ACTIVATIONS),
    Operand("w_uv", "H C V", ACTIVATIONS),
    Operand("latent_scale", "2", FLOAT32, optional=True),
    Operand("rope_scale", "2", FLOAT32, optional=True),
    Operand("q_scale", "2", FLOAT32, optional=True),
    Operand("k_scale", "2", FLOAT32, optional=True),
    Operand("v_scale", "2", FLOAT32, optional=True),
    *TWIN,
)


def check(
    *tensors: Any,
    encoding: str,
    tokens_per_page: int,
    chunk_tokens: int,
    softmax_scale: float,
    v_layout: str = "rows",
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> dict[str, Any]:
    """Check shapes, strides, dtypes, scales, encodings and layout; return the sizes."""
    named = mixed.named(OPERANDS, tensors)
    sizes = check_operands("mla_context", OPERANDS, named, v_layout)
    scales = [("latent", "latent_scale", named["latent_scale"]), ("rope", "rope_scale", named["rope_scale"])]
    check_scales("mla_context", encoding, scales)
    row = mixed.RowSizes(MLA, (1, 1), (sizes["C"], sizes["R"]))
    encodings, retained = (encoding, twin_encoding), (first, last, unit)
    mixed.check_pools("mla_context", row, named, TWIN, encodings, tokens_per_page, retained)
    check_chunk("mla_context", chunk_tokens, tokens_per_page)
    return sizes


def check_operands(
    op: str, operands: Sequence[Operand], named: dict[str, torch.Tensor], v_layout: str
) -> dict[str, Any]:
    """Check what every form of context attention is given: shapes, strides, dtypes, V's layout; return the sizes."""
    check_v_layout(op, v_layout)
    sizes = bind(op, operands if v_layout == "rows" else _with_transposed_v(operands), list(named.values()))
    _check_widths(op, sizes)
    _check_dtypes(op, named)
    _check_strides(op, named, v_layout)
    return sizes


def _with_transposed_v(operands: Sequence[Operand]) -> list[Operand]:
    return [replace(one, axes="H V columns") if one.name == "v" else one for one in operands]


def check_chunk(op: str, chunk_tokens: int, tokens_per_page: int) -> None:
    """Raise KVC551 unless a chunk is whole pages."""
    if chunk_tokens < 1 or chunk_tokens % tokens_per_page:
        problem = f"is {chunk_tokens}, expected a multiple of the {tokens_per_page} tokens of a page"
        raise wrong(op, "chunk_tokens", problem)


def _check_widths(op: str, sizes: dict[str, Any]) -> None:
    width, expected = sizes["K"], sizes["N"] + sizes["R"]
    if known(width, expected) and width != expected:
        raise wrong(op, "k", f"axis K is {width}, expected N + R = {expected}")
    if "columns" not in sizes:
        return
    size, expected = sizes["columns"], transposed.columns(sizes["T"], sizes["B"])
    if known(size, expected) and size != expected:
        raise wrong(op, "v", f"axis columns is {size}, expected T + 16 B = {expected}")


def _check_dtypes(op: str, named: dict[str, torch.Tensor]) -> None:
    """Accepted (Q, K and V): act and act, act and fp8, fp8 and fp8; codes come with the scale they were made under."""
    same_dtype(op, {name: named[name] for name in ("w_uk", "w_uv")})
    same_dtype(op, {name: named[name] for name in ("k", "v")})
    if (named["k_scale"] is None) != (named["v_scale"] is None):
        raise wrong(op, "v_scale", "goes with k_scale: give both or neither")
    for name, scale in (("q_nope", "q_scale"), ("q_rope", "q_scale"), ("k", "k_scale"), ("v", "v_scale")):
        if named[name].dtype != torch.uint8:
            same_dtype(op, {"w_uk": named["w_uk"], name: named[name]})
        elif named[scale] is None:
            raise wrong(op, scale, f"is missing: {name} holds codes")
    if named["q_scale"] is not None and named["k_scale"] is None:
        raise wrong(op, "k_scale", "is missing: fp8 Q goes with fp8 K and V alone")


def _check_strides(op: str, named: dict[str, torch.Tensor], v_layout: str) -> None:
    for name, axis in (("q_nope", "N"), ("q_rope", "R"), ("k", "K"), ("v", "V" if v_layout == "rows" else "columns")):
        stride = named[name].stride(-1)
        if known(stride) and stride != 1 and named[name].shape[-1] > 1:
            raise wrong(op, name, f"axis {axis} has stride {stride}, expected 1")


def check_values(*tensors: Any, tokens_per_page: int, **_: Any) -> None:
    """Pages lie in the pool, committed rows in the table, own tokens in T."""
    q_nope, _q_rope, _k, _v, pool, page_table, committed, query_starts = tensors[:8]
    check_range("mla_context", "page_table", page_table, -1, pool.shape[0])
    check_range("mla_context", "committed", committed, 0, page_table.shape[1] * tokens_per_page + 1)
    check_starts("mla_context", "query_starts", query_starts, q_nope.shape[0])
    mixed.check_twin_values("mla_context", mixed.named(OPERANDS, tensors), tokens_per_page)


def fake(q_nope: torch.Tensor, *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    (tokens, heads), w_uv = q_nope.shape[:2], rest[8]
    return w_uv.new_empty((tokens, heads, w_uv.shape[2])), w_uv.new_empty((tokens, heads), dtype=torch.float32)


def scratch(*tensors: Any, chunk_tokens: int, **_: Any) -> int:
    """K and V of one expanded chunk of cached rows, for one sequence at a time: e4m3 under scales."""
    return expanded_bytes(mixed.named(OPERANDS, tensors), chunk_tokens)


def expanded_bytes(named: dict[str, torch.Tensor], chunk_tokens: int) -> int:
    """Bytes of K and V of a chunk, for the operands of a form of context attention by name."""
    (heads, nope, _latent), (_, _, width) = named["w_uk"].shape, named["w_uv"].shape
    size = named["w_uk"].itemsize if named["k_scale"] is None else 1
    return int(chunk_tokens * heads * (nope + named["q_rope"].shape[2] + width) * size)
