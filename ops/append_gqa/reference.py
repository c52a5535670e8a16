"""Reference of kvc::append_gqa."""

import torch

from kvc.ops.codecs import codec_of, encode_fields
from kvc.ops.paging import layout_of, write_planes
from kvc.ops.rope.reference import rope


def append_gqa(
    pool: torch.Tensor,
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor | None,
    rows: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    *,
    encoding: str,
    tokens_per_page: int,
    keep_k: bool,
    layout: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q and k, encode k and v and store them: rope, quantize and store_rows in one op, byte for byte.

    pool uint8 [P, page_bytes], written in place; q [T, H, D], k [T, Hk, D], v [T, Hk, V] in activation dtypes, before
    RoPE; table f32 [M, R], positions i32 [T] and layout as in kvc::rope, all three None: no RoPE; rows i32 [T] as in
    kvc::store_rows; scales f32 [2] = [scale, factor] where the encoding takes them, else None.
    Returns q rotated [T, H, D], empty [0, Hk, D] where no q is given, and k rotated [T, Hk, D], empty [0, Hk, D]
    unless ``keep_k``.
    Errors, all before anything is written: KVC551 shapes and dtypes, KVC552 position or row out of range, KVC553 a row
    given twice, KVC554 encoding or layout. Source: docs/semantics.md.
    """
    nothing = k.new_empty((0, *k.shape[1:]))
    q_rotated = nothing if q is None else _rotate(q, table, positions, layout)
    k_rotated = _rotate(k, table, positions, layout)
    planes = encode_fields(codec_of("append_gqa", encoding), (k_rotated, v), (k_scale, v_scale))
    dims = (k.shape[2], v.shape[2])
    write_planes(pool, planes, rows, layout_of(encoding, (k.shape[1], v.shape[1]), dims, tokens_per_page))
    return q_rotated, k_rotated if keep_k else nothing.clone()


def _rotate(
    x: torch.Tensor, table: torch.Tensor | None, positions: torch.Tensor | None, layout: str | None
) -> torch.Tensor:
    """``x`` with positions encoded; a copy without a table, since results of an op are never its arguments."""
    if table is None or positions is None or layout is None:
        return x.clone()
    return rope(x, table, positions, layout=layout)
