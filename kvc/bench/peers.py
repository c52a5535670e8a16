"""Other libraries' kernels for the same work, from the folder that ``KVC_PEERS`` names.

The folder holds `_flashmla_C.abi3.so`, `_flashmla_extension_C.abi3.so` and `_vllm_fa3_C.abi3.so` of the wheel
`vllm==0.24.0`, which was built for torch 2.11; what is absent or does not load is left out.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kvc.ops.bench_shapes import Case
from kvc.ops.example_inputs import Shape

Call = Callable[[], object]
FLASH_MLA, FA3 = "_flashmla_extension_C", "_vllm_fa3_C"  # their namespaces in torch.ops


@dataclass(frozen=True)
class PeerKernel:
    """``make(shape, device)`` gives a call on inputs of its own; ``takes`` says for which cases it is a peer."""

    name: str
    library: str
    op: str
    takes: Callable[[Case], bool]
    make: Callable[[Shape, torch.device], Call]


def peer_of(op: str, case: Case) -> PeerKernel | None:
    """The peer of a case, if its library is there."""
    fits = (peer for peer in PEERS if peer.op == op and peer.takes(case))
    return next((peer for peer in fits if _loaded(peer.library)), None)


@cache
def _loaded(library: str) -> bool:
    folder = os.environ.get("KVC_PEERS")
    path = Path(folder) / library if folder else None
    if path is None or not path.is_file():
        return False
    try:
        torch.ops.load_library(str(path))
    except (OSError, RuntimeError, ImportError):  # built for another torch or CUDA
        return False
    return True


def _flash_mla_fp8(shape: Shape, device: torch.device) -> Call:
    """Dense decode on a cache in e4m3 with queries in e4m3."""
    ops, size = getattr(torch.ops, FLASH_MLA), shape.tokens_per_page
    width = shape.latent_dim + shape.rope_dim
    cache = torch.randn(sum(shape.pages), size, 1, width, device=device, dtype=torch.bfloat16).to(torch.float8_e4m3fn)
    q = torch.randn(len(shape.own), 1, shape.heads, width, device=device).to(torch.float8_e4m3fn)
    table = torch.randperm(sum(shape.pages), device=device).int().view(len(shape.own), -1)
    lengths = torch.tensor(shape.lengths, dtype=torch.int32, device=device)
    plan, splits = ops.get_mla_decoding_metadata_dense_fp8(lengths, shape.heads, 1)
    one, scale = torch.ones(1, device=device), (shape.nope_dim + shape.rope_dim) ** -0.5
    args = q, cache, shape.latent_dim, lengths, table, scale, True, plan, splits, one, one
    return lambda: ops.fwd_kvcache_mla_fp8(*args)


def _fa3(shape: Shape, device: torch.device) -> Call:
    """Causal attention of one sequence in bf16."""
    return _fa3_call(shape.own[0], shape.heads, shape.heads, shape.nope_dim + shape.rope_dim, shape.v_head_dim, device)


def _fa3_gqa(shape: Shape, device: torch.device) -> Call:
    return _fa3_call(shape.own[0], shape.heads, shape.kv_heads, shape.head_dim, shape.v_head_dim, device)


def _fa3_call(tokens: int, heads: int, kv_heads: int, width: int, v_width: int, device: torch.device) -> Call:
    starts = torch.tensor([0, tokens], device=device, dtype=torch.int32)
    sizes = (heads, width), (kv_heads, width), (kv_heads, v_width)
    q, k, v = (torch.randn(tokens, *size, device=device, dtype=torch.bfloat16) for size in sizes)
    none: tuple[Any, ...] = (None,) * 6
    args = (q, k, v, *none[:4], starts, starts, *none[:3], tokens, tokens, *none, None, None, None, width**-0.5)
    rest = (True, -1, -1, 0.0, False, None, 1, None, 0, None, 1, 0, None)
    return lambda: getattr(torch.ops, FA3).fwd(*args, *rest)


def _is_dense_decode(case: Case) -> bool:
    shape = case.shape
    return set(shape.own) == {1} and (shape.latent_dim, shape.rope_dim, shape.tokens_per_page) == (512, 64, 64)


def _is_whole_prompt(case: Case) -> bool:
    return case.shape.committed == (0,) and case.shape.padding == 0


PEERS: tuple[PeerKernel, ...] = (
    PeerKernel("FlashMLA dense fp8", f"{FLASH_MLA}.abi3.so", "mla_decode", _is_dense_decode, _flash_mla_fp8),
    PeerKernel("FA3 bf16", f"{FA3}.abi3.so", "mla_context", _is_whole_prompt, _fa3),
    PeerKernel("FA3 bf16", f"{FA3}.abi3.so", "gqa_context", _is_whole_prompt, _fa3_gqa),
)
