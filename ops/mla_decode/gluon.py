"""kvc::mla_decode of fp8 pages of 64 tokens of 512 + 64 on Hopper."""

# mypy: ignore-errors
from dataclasses import dataclass
from functools import lru_cache

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kvc.ops.device.latent_fp8 import attend_latent_fp8
from kvc.ops.device.splits import merge, partials, split_count
from kvc.ops.mla_decode.triton import mla_decode as general

PAGE_BYTES = 64 * 576


@dataclass(frozen=True)
class _Memory:
    """What a descriptor asks of a tensor, without keeping its memory."""

    address: int
    dtype: torch.dtype = torch.float8_e4m3fn

    def data_ptr(self) -> int:
        return self.address


@lru_cache(maxsize=4096)
def _descriptors(address: int, pages: int, stride: int) -> tuple[TensorDescriptor, TensorDescriptor]:
    """The pool as rows of 512 bytes, and as rows of 64: a page starts at a multiple of both."""
    bytes = (pages - 1) * stride + PAGE_BYTES
    return tuple(
        TensorDescriptor(
            _Memory(address), [bytes // width, width], [width, 1], [64, width], gl.NVMMASharedLayout(swizzle, 8, 2)
        )
        for width, swizzle in ((512, 128), (64, 64))
    )


def _takes(pool: torch.Tensor, *features: torch.Tensor) -> bool:
    """Whether TMA reaches the pages: by 32-bit numbers of rows, from whole rows on."""
    aligned = pool.data_ptr() % 16 == 0 and pool.stride(0) % 512 == 0
    small = pool.shape[0] > 0 and pool.shape[0] * pool.stride(0) < 2**31 * 64
    return aligned and small and all(x.stride(2) == 1 for x in features)


def rows_of_a_program(rows: int) -> int:
    """Query rows of a program for a number of them a sequence: registers and shared memory hold two on an SM."""
    return 16 if rows <= 16 else 32


def mla_decode(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    latent_scale: torch.Tensor,
    rope_scale: torch.Tensor,
    *twin: None,
    encoding: str,
    tokens_per_page: int,
    softmax_scale: float,
    **reads: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference, for fp8 pages of 64 tokens of 512 + 64 features, bf16 queries, no twin."""
    if not _takes(pool, q_latent, q_rope):
        how = {"encoding": encoding, "tokens_per_page": tokens_per_page, "softmax_scale": softmax_scale, **reads}
        return general(q_latent, q_rope, pool, page_table, lengths, latent_scale, rope_scale, *twin, **how)
    sequences = lengths.shape[0]
    queries = q_latent.shape[0] // max(1, sequences)
    return run(q_latent, q_rope, pool, page_table, lengths, latent_scale, rope_scale, softmax_scale, queries)


def run(
    q_latent, q_rope, pool, page_table, lengths, latent_scale, rope_scale, softmax_scale, queries, rows=0, splits=0
):
    """Launch for ``queries`` tokens a sequence; ``rows`` of a program and ``splits`` as the shapes say where 0."""
    (tokens, heads, width), sequences = q_latent.shape, lengths.shape[0]
    out = torch.empty((tokens, heads, width), dtype=q_latent.dtype, device=q_latent.device)
    lse = torch.empty((tokens, heads), dtype=torch.float32, device=q_latent.device)
    if out.numel() == 0:
        return out, lse
    rows = rows or rows_of_a_program(queries * heads)
    programs = sequences * -(-queries * heads // rows)
    splits = splits or split_count(programs, page_table.shape[1] * 64)
    parts, part_lse = partials(out, lse, splits)
    latent, rope = _descriptors(pool.data_ptr(), pool.shape[0], pool.stride(0))
    if page_table.stride(1) != 1 or lengths.stride(0) != 1:
        page_table, lengths = page_table.contiguous(), lengths.contiguous()
    attend_latent_fp8[(programs * splits,)](
        q_latent,
        q_rope,
        latent,
        rope,
        page_table,
        lengths,
        latent_scale,
        rope_scale,
        parts,
        part_lse,
        *q_latent.stride()[:2],
        *q_rope.stride()[:2],
        page_table.stride(0),
        page_table.shape[1],
        pool.stride(0) // 512,
        pool.stride(0) // 64,
        512,
        sequences,
        splits,
        softmax_scale,
        QUERIES=queries,
        HEADS=heads,
        N=rows,
        STAGES=2,
        STEP=16,
        SAME=latent_scale.data_ptr() == rope_scale.data_ptr(),
        num_warps=4,
    )
    merge(parts, part_lse, out, lse)
    return out, lse
