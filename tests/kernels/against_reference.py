"""Runs a kernel and the reference of an op on equal inputs and compares results and written operands."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kvc.capabilities import KERNELS
from kvc.ops import OPS
from kvc.ops.kernels import PinnedCall, implementation

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Outcome:
    """What a call gave: its results, and its operands afterwards."""

    results: list[torch.Tensor]
    operands: list[Any]


def moved(value: Any, device: str) -> Any:
    """A copy on a device with the strides of the original."""
    if isinstance(value, list | tuple):
        return [moved(one, device) for one in value]
    if not isinstance(value, torch.Tensor):
        return value
    twin = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return twin.copy_(value)


def flat(values: Any) -> list[torch.Tensor]:
    """The tensors in a nesting."""
    if isinstance(values, torch.Tensor):
        return [values]
    return [one for value in values or () for one in flat(value)] if isinstance(values, list | tuple) else []


def run_kernel(op: str, kernel: str, device: str, args: Any, kwargs: dict[str, Any]) -> Outcome:
    """On a GPU through the dispatcher, with the kernel pinned; on a CPU the function itself, interpreted.

    A kernel without a row, or one whose row does not take such calls yet, is called itself on a GPU too.
    """
    operands = moved(args, device)
    if device == "cpu" and torch.cuda.is_available():
        pytest.skip("the interpreter is for machines without a GPU")
    rows = (row for row in KERNELS if (row.op, row.name) == (op, kernel) and not row.takes)
    listed = device == "cuda" and any(rows)
    call = PinnedCall(OPS[op].overload, kernel) if listed else implementation(OPS[op], kernel)
    return Outcome(flat(call(*operands, **kwargs)), operands)


def run_reference(op: str, args: Any, kwargs: dict[str, Any]) -> Outcome:
    """On the CPU."""
    operands = moved(args, "cpu")
    return Outcome(flat(OPS[op].overload(*operands, **kwargs)), operands)


def same_bytes(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal bit for bit, NaN and the sign of zero included."""
    if (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return False
    bits = [x.cpu().contiguous().view(WIDTHS[x.itemsize]) for x in (got, expected)]
    return torch.equal(*bits)


def assert_exact(op: str, kernel: str, device: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Results and every byte of every operand, the pools among them, are those of the reference."""
    got, expected = run_kernel(op, kernel, device, args, kwargs), run_reference(op, args, kwargs)
    assert len(got.results) == len(expected.results)
    for index, (a, b) in enumerate(zip(got.results, expected.results, strict=True)):
        assert same_bytes(a, b), f"result {index} of {op}: {differing(a, b)}"
    for name, a, b in zip(OPS[op].operand_names, got.operands, expected.operands, strict=False):
        for one, other in zip(flat(a), flat(b), strict=True):
            assert same_bytes(one, other), f"operand {name} of {op}: {differing(one, other)}"


def differing(got: torch.Tensor, expected: torch.Tensor) -> str:
    """How many elements differ, and the first of them."""
    if (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return f"{got.dtype} {list(got.shape)}, expected {expected.dtype} {list(expected.shape)}"
    a, b = (x.cpu().contiguous().view(WIDTHS[x.itemsize]) for x in (got, expected))
    where = (a != b).nonzero()
    first = tuple(where[0].tolist())
    values = got.cpu()[first].item(), expected[first].item()
    return f"{len(where)} of {got.numel()} elements, first at {first}: {values[0]}, expected {values[1]}"
