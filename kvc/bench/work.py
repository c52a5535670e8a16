"""Bytes and operations that a call cannot do without: every operand read once, every result written once.

Of a pool only the rows count that the call addresses; of a rope table the rows of its tokens. Operations are those of
attention's and other products, two for a multiplication and an addition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kvc.ops import OpDef
from kvc.ops.bench_shapes import Case
from kvc.ops.example_inputs import Shape

_POOLS = ("pool", "twin")


@dataclass(frozen=True)
class Work:
    """``unit``: the kind of product whose ceiling applies, `bf16` or `fp8`."""

    bytes: int
    flops: int
    unit: str


def work_of(op: OpDef, case: Case, args: Sequence[Any], results: Any) -> Work:
    """Count a call of the case."""
    named = dict(zip(op.operand_names, args, strict=False))
    moved = sum(_operand_bytes(op, case, name, value) for name, value in named.items()) + _nbytes(results)
    flops = _FLOPS.get(op.name, _none)(case.shape)
    codes = op.name == "mla_context" and named["k"].dtype == torch.uint8
    return Work(moved, flops, "fp8" if codes else "bf16")


def _operand_bytes(op: OpDef, case: Case, name: str, value: Any) -> int:
    if name in _POOLS:
        return _pool_rows(op, case, name) * row_bytes(value, case.shape)
    if name == "table" and isinstance(value, torch.Tensor):
        return int(case.shape.tokens * value.shape[1] * value.itemsize)
    return _nbytes(value)


def row_bytes(pool: torch.Tensor | None, shape: Shape) -> int:
    """Bytes of a token in a pool; 0 without one."""
    return 0 if pool is None else pool.shape[1] // shape.tokens_per_page


def _pool_rows(op: OpDef, case: Case, name: str) -> int:
    """Rows of the history or of the twin that the call reads or writes; a row is read from one of both."""
    shape = case.shape
    if name in op.mutates:
        return shape.tokens
    retained = sum(map(_retained(case), shape.committed, shape.own))
    return retained if name == "twin" else sum(shape.lengths) - retained


def _retained(case: Case) -> Callable[[int, int], int]:
    if case.twin is None:
        return lambda committed, own: 0
    ends = case.twin.first + case.twin.last
    return lambda committed, own: min(committed, ends) + own


def _nbytes(values: Any) -> int:
    if isinstance(values, torch.Tensor):
        return values.nbytes
    return sum(map(_nbytes, values)) if isinstance(values, list | tuple) else 0


def _pairs(shape: Shape) -> int:
    """Pairs of a query and a key that it sees."""
    return sum(
        own * committed + own * (own + 1) // 2 for committed, own in zip(shape.committed, shape.own, strict=True)
    )


def _gqa(shape: Shape) -> int:
    return 2 * shape.heads * (shape.head_dim + shape.v_head_dim) * _pairs(shape)


def _mla_context(shape: Shape) -> int:
    return 2 * shape.heads * (shape.nope_dim + shape.rope_dim + shape.v_head_dim) * _pairs(shape)


def _absorbed(shape: Shape) -> int:
    return 2 * shape.heads * (2 * shape.latent_dim + shape.rope_dim) * _pairs(shape)


def _sparse(shape: Shape) -> int:
    seen = sum(min(shape.top_k, length) * own for length, own in zip(shape.lengths, shape.own, strict=True))
    return 2 * shape.heads * (2 * shape.latent_dim + shape.rope_dim) * seen


def _expand(shape: Shape) -> int:
    return 2 * shape.tokens * shape.heads * shape.latent_dim * (shape.nope_dim + shape.v_head_dim)


def _project(shape: Shape) -> int:
    return 2 * shape.tokens * shape.heads * shape.latent_dim * shape.nope_dim


def _index(shape: Shape) -> int:
    return 2 * shape.index_heads * shape.index_dim * _pairs(shape)


def _none(shape: Shape) -> int:
    return 0


_FLOPS: dict[str, Callable[[Shape], int]] = {
    "gqa_decode": _gqa,
    "gqa_decode_gathered": _gqa,
    "gqa_context": _gqa,
    "gqa_context_gathered": _gqa,
    "mla_context": _mla_context,
    "mla_context_gathered": _mla_context,
    "mla_decode": _absorbed,
    "mla_decode_gathered": _absorbed,
    "mla_sparse": _sparse,
    "expand_mla": _expand,
    "project_heads": _project,
    "index_topk": _index,
}
