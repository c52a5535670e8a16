"""Reference of kvc::append_mla."""

import torch

from kvc.ops.codecs import MLA, row_fields, row_format
from kvc.ops.paging import write_planes
from kvc.ops.rope.reference import rotated_copy


def append_mla(
    pool: torch.Tensor,
    q_rope: torch.Tensor | None,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor | None,
    rows: torch.Tensor,
    latent_scale: torch.Tensor | None,
    rope_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_rows: torch.Tensor | None = None,
    latent_twin_scale: torch.Tensor | None = None,
    rope_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    keep_k: bool,
    layout: str | None = None,
    twin_encoding: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q_rope and k_rope, encode latent and k_rope and store them: rope, quantize, store_rows, byte for byte.

    pool uint8 [P, page_bytes], written in place; q_rope [T, H, R] and k_rope [T, 1, R] in activation dtypes, before
    RoPE; latent [T, 1, C] in an activation dtype, or its codes already (uint8) where the encoding is fp8; table f32
    [M, rotated], positions i32 [T] and layout as in kvc::rope, all three None: no RoPE; rows i32 [T] as in
    kvc::store_rows; scales f32 [2] = [scale, factor] where the encoding takes them, else None.
    Returns q_rope rotated [T, H, R], empty [0, 1, R] where none is given, and k_rope rotated [T, 1, R], empty
    [0, 1, R] unless ``keep_k``.
    A twin, uint8 [Q, twin_bytes], gets the same rows in twin_encoding under its own scales at twin_rows i32 [T], -1
    where it holds no page, as kvc::store_retained_rows writes them; it takes no codes of a caller.
    Errors, all before anything is written: KVC551 shapes and dtypes, KVC552 position or row out of range, KVC553 a row
    given twice, KVC554 encoding or layout. Source: docs/semantics.md.
    """
    nothing = k_rope.new_empty((0, *k_rope.shape[1:]))
    q_rotated = nothing if q_rope is None else rotated_copy(q_rope, table, positions, layout)
    k_rotated = rotated_copy(k_rope, table, positions, layout)
    row = row_format("append_mla", encoding, row_fields(MLA, (1, 1), (latent.shape[2], k_rope.shape[2])))
    planes = row.encode((latent, k_rotated), (latent_scale, rope_scale))
    if twin is not None and twin_rows is not None and twin_encoding is not None:
        high = row_format("append_mla", twin_encoding, row.fields)
        again = high.encode((latent, k_rotated), (latent_twin_scale, rope_twin_scale))
        write_planes(twin, again, twin_rows, high.layout(tokens_per_page))
    write_planes(pool, planes, rows, row.layout(tokens_per_page))
    return q_rotated, k_rotated if keep_k else nothing.clone()
