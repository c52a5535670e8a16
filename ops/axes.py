"""Operands of an op as a table: named axes, dtypes, and checks whose errors name the op, the argument and the axis.

The checks read shapes and dtypes alone and compare plain ints only: a symbolic size is bound to its axis and never
compared, so a fake kernel that calls them adds no guard. Checks of *values* are in `kvc.ops.values`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kvc.diagnostics import KvcError, fail

# Names of activation dtypes in specs and programs.
ACTIVATION_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ACTIVATIONS = frozenset(ACTIVATION_DTYPES.values())
FLOAT32 = frozenset({torch.float32})
INT32 = frozenset({torch.int32})
BYTES = frozenset({torch.uint8})


@dataclass(frozen=True)
class Operand:
    """One tensor argument of an op.

    ``axes`` names its sizes, outermost first, separated by blanks: a name (`T`), a number (`2`) or a name plus a
    number (`B+1`); a leading `...` takes any number of axes, unnamed. One name must have one size over all operands.
    """

    name: str
    axes: str
    dtypes: frozenset[torch.dtype]
    optional: bool = False
    extents: tuple[tuple[str, int], ...] = field(init=False)
    any_rank: bool = field(init=False)

    def __post_init__(self) -> None:
        names = self.axes.split()
        object.__setattr__(self, "any_rank", names[:1] == ["..."])
        object.__setattr__(self, "extents", tuple(_extent(name) for name in names if name != "..."))


def _extent(text: str) -> tuple[str, int]:
    name, _, more = text.partition("+")
    return ("", int(name)) if name.isdigit() else (name, int(more or 0))


def known(*sizes: Any) -> bool:
    """Whether every size is a plain int, hence free to compare."""
    return all(type(size) is int for size in sizes)


def wrong(op: str, argument: str, problem: str, *, help: str = "") -> KvcError:
    """The error for an operand that an op cannot take: ``raise wrong("rope", "table", "axis R is odd")``."""
    return fail("KVC551", f"kvc::{op}: {argument}: {problem}", help=help)


def bind(op: str, operands: Sequence[Operand], tensors: Sequence[torch.Tensor | None]) -> dict[str, Any]:
    """Match tensors against the table and return the size of every named axis.

    Raises KvcError KVC551 naming op, argument and axis for a wrong rank, size, dtype or device, or a missing operand.
    """
    sizes: dict[str, Any] = {}
    device = None
    for operand, tensor in zip(operands, tensors, strict=True):
        if tensor is None:
            if not operand.optional:
                raise wrong(op, operand.name, "is missing")
            continue
        device = device or tensor.device
        if tensor.device != device:
            raise wrong(op, operand.name, f"is on {tensor.device}, the operands before it on {device}")
        if tensor.dtype not in operand.dtypes:
            raise wrong(op, operand.name, f"dtype is {_name(tensor.dtype)}, expected {_names(operand.dtypes)}")
        _bind_axes(op, operand, tensor, sizes)
    return sizes


def same_dtype(op: str, tensors: dict[str, torch.Tensor]) -> None:
    """Raise KVC551 unless the tensors, by argument, have the dtype of the first."""
    (first, like), *others = tensors.items()
    for argument, tensor in others:
        if tensor.dtype != like.dtype:
            raise wrong(op, argument, f"dtype is {_name(tensor.dtype)}, that of {first} is {_name(like.dtype)}")


def _bind_axes(op: str, operand: Operand, tensor: torch.Tensor, sizes: dict[str, Any]) -> None:
    shape, extents = tensor.shape, operand.extents
    if operand.any_rank:
        shape = shape[len(shape) - len(extents) :]
    if len(shape) != len(extents):
        raise wrong(op, operand.name, f"has {tensor.ndim} axes, expected [{operand.axes}]")
    for (name, more), size in zip(extents, shape, strict=True):
        expected = sizes.setdefault(name, size - more) + more if name else more
        if expected is not size and known(expected, size) and expected != size:
            raise wrong(op, operand.name, f"axis {_axis(name, more)} is {size}, expected {expected}")


def _axis(name: str, more: int) -> str:
    return f"{name}+{more}" if name and more else name or str(more)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _names(dtypes: frozenset[torch.dtype]) -> str:
    return " or ".join(sorted(map(_name, dtypes)))
