"""Reference of kvc::append_gqa."""

import torch

from kvc.ops.codecs import KV, row_fields, row_format
from kvc.ops.paging import write_planes
from kvc.ops.rope.reference import rotated_copy


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
    twin: torch.Tensor | None = None,
    twin_rows: torch.Tensor | None = None,
    k_twin_scale: torch.Tensor | None = None,
    v_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    keep_k: bool,
    layout: str | None = None,
    twin_encoding: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q and k, encode k and v and store them: rope, quantize and store_rows in one op, byte for byte.

    pool uint8 [P, page_bytes], written in place; q [T, H, D], k [T, Hk, D], v [T, Hk, V] in activation dtypes, before
    RoPE; table f32 [M, R], positions i32 [T] and layout as in kvc::rope, all three None: no RoPE; rows i32 [T] as in
    kvc::store_rows; scales f32 [2] = [scale, factor] where the encoding takes them, else None. v may hold its codes
    already (uint8), where the encoding is fp8.
    Returns q rotated [T, H, D], empty [0, Hk, D] where no q is given, and k rotated [T, Hk, D], empty [0, Hk, D]
    unless ``keep_k``.
    A twin, uint8 [Q, twin_bytes], gets the same rows in twin_encoding under its own scales at twin_rows i32 [T], -1
    where it holds no page, as kvc::store_retained_rows writes them; it takes no codes of a caller.
    Errors, all before anything is written: KVC551 shapes and dtypes, KVC552 position or row out of range, KVC553 a row
    given twice, KVC554 encoding or layout. Source: docs/semantics.md.
    """
    nothing = k.new_empty((0, *k.shape[1:]))
    q_rotated = nothing if q is None else rotated_copy(q, table, positions, layout)
    k_rotated = rotated_copy(k, table, positions, layout)
    row = row_format("append_gqa", encoding, row_fields(KV, (k.shape[1], v.shape[1]), (k.shape[2], v.shape[2])))
    planes = row.encode((k_rotated, v), (k_scale, v_scale))
    if twin is not None and twin_rows is not None and twin_encoding is not None:
        high = row_format("append_gqa", twin_encoding, row.fields)
        again = high.encode((k_rotated, v), (k_twin_scale, v_twin_scale))
        write_planes(twin, again, twin_rows, high.layout(tokens_per_page))
    write_planes(pool, planes, rows, row.layout(tokens_per_page))
    return q_rotated, k_rotated if keep_k else nothing.clone()
