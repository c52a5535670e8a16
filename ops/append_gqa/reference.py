"""Reference of kvc::append_gqa."""

import torch

from kvc.ops.codecs import codec_of, encode_fields
from kvc.ops.paging import layout_of, write_planes
from kvc.ops.rope.reference import rope


def append_gqa(
    pool: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor,
    rows: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    *,
    encoding: str,
    tokens_per_page: int,
    layout: str,
    keep_k: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate q and k, encode k and v and store them: rope, quantize and store_rows in one op, byte for byte.

    pool uint8 [P, page_bytes], written in place; q [T, H, D], k [T, Hk, D], v [T, Hk, V] in activation dtypes, before
    RoPE; table f32 [M, R] and positions i32 [T] as in kvc::rope, table None: no RoPE; rows i32 [T] as in
    kvc::store_rows; scales f32 [2] = [scale, factor] where the encoding takes them, else None.
    Returns q rotated [T, H, D] and k rotated [T, Hk, D], which is empty [0, Hk, D] unless ``keep_k``.
    Errors, all before anything is written: KVC551 shapes and dtypes, KVC552 position or row out of range, KVC553 a row
    given twice, KVC554 encoding or layout. Source: DESIGN sections 7 and 8 (fuse_append).
    """
    turned = [x.clone() if table is None else rope(x, table, positions, layout=layout) for x in (q, k)]
    planes = encode_fields(codec_of("append_gqa", encoding), (turned[1], v), (k_scale, v_scale))
    dims = (k.shape[2], v.shape[2])
    write_planes(pool, planes, rows, layout_of(encoding, (k.shape[1], v.shape[1]), dims, tokens_per_page))
    return turned[0], turned[1] if keep_k else k.new_empty((0, *k.shape[1:]))
