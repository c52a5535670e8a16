"""Which implementation of an op runs: the rows of the capability table that take a call, and their functions.

A kernel named `triton` of op `x` is the function `x` in `kvc.ops.<folder>.triton`, imported when it first runs: it
takes the op's own arguments and returns its results. Shapes and dtypes are checked as for the reference; values are
read on the host, which waits for the device, only where ``KVC_CHECK_VALUES=1`` asks for it.
"""

import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from kvc.capabilities import KERNELS, Kernel
from kvc.compat import op_schema
from kvc.diagnostics import fail

if TYPE_CHECKING:
    from kvc.ops.registry import OpDef

REFERENCE = "reference"
CHECK_VALUES = os.environ.get("KVC_CHECK_VALUES") == "1"
_pinned: ContextVar[str | None] = ContextVar("kernel", default=None)


@dataclass(frozen=True)
class PinnedCall:
    """An op with the kernel that a graph names for it; anything that sees the op being called sees it as usual."""

    overload: Callable[..., Any]
    kernel: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op; KVC557 where the kernel cannot run this call."""
        token = _pinned.set(self.kernel)
        try:
            return self.overload(*args, **kwargs)
        finally:
            _pinned.reset(token)


def usable_kernels(op: str, device: str, arch: str | None) -> list[Kernel]:
    """The kernels of an op on a device, those made for the architecture before generic ones."""
    usable = [k for k in KERNELS if k.op == op and device in k.devices and (k.archs is None or arch in k.archs)]
    return sorted(usable, key=lambda kernel: kernel.archs is None)


def facts(op: "OpDef", args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a row's ``takes`` may ask of a call: named sizes, attributes, and the dtype of each operand by its name.

    A dtype is written as torch does (`bfloat16`); an operand that is not given is `none`. Tensors may be on the meta
    device. KVC551 where the call is wrong.
    """
    known = dict.fromkeys(op.operand_names, "none")
    known |= {
        name: str(value.dtype).removeprefix("torch.")
        for name, value in zip(op.operand_names, args, strict=False)
        if isinstance(value, torch.Tensor)
    }
    sizes = op.check(*args, **kwargs)
    return {**known, **(sizes if isinstance(sizes, dict) else {}), **op.defaults, **kwargs}


def refused(kernel: Kernel, known: dict[str, Any]) -> str:
    """Why a kernel does not take a call with these facts; empty if it does."""
    for name, values in kernel.takes:
        if known.get(name) not in values:
            return f"{name} is {known.get(name)}, {kernel.name} takes {' or '.join(map(str, values))}"
    return ""


@lru_cache(maxsize=64)
def arch_of(device: torch.device) -> str:
    """`sm_90` for a Hopper GPU."""
    return "sm_{}{}".format(*torch.cuda.get_device_capability(device))


@lru_cache(maxsize=256)
def implementation(op: "OpDef", kernel: str) -> Callable[..., Any]:
    """The function that a kernel is; KVC557 where the package that it is written in is missing."""
    if kernel == REFERENCE:
        return op.reference
    try:
        return getattr(import_module(f"{op.folder}.{kernel}"), op.name)  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        message = f"kvc::{op.name}: kernel {kernel} needs the package {error.name}, which is not installed"
        raise fail("KVC557", message, help=f"pip install {error.name}") from error


def on_cuda(op: "OpDef") -> Callable[..., Any]:
    """An op on CUDA tensors: the pinned kernel runs, or the first of the architecture that takes the call."""

    def run(*args: Any, **kwargs: Any) -> Any:
        kernel = _chosen(op, args, kwargs)
        op.check(*args, **kwargs)
        if kernel == REFERENCE or CHECK_VALUES:
            op.check_values(*args, **kwargs)
        return implementation(op, kernel)(*args, **kwargs)

    return run


def chosen_kernel(op: "OpDef", args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The kernel that a call outside a graph runs."""
    return _chosen(op, args, kwargs) if _device(args).type == "cuda" else REFERENCE


def _chosen(op: "OpDef", args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    pinned = _pinned.get()
    if pinned == REFERENCE:
        return pinned
    rows = [row for row in _rows(op.name, arch_of(_device(args))) if pinned in (None, row.name)]
    known = facts(op, args, kwargs) if any(row.takes for row in rows) else {}
    reasons = {row.name: refused(row, known) for row in rows}
    chosen = next((name for name, reason in reasons.items() if not reason), None)
    if chosen is None:
        raise fail("KVC557", f"kvc::{op.name}: {reasons.get(pinned or '') or f'no kernel {pinned} on this device'}")
    return chosen


@lru_cache(maxsize=256)
def _rows(op: str, arch: str) -> tuple[Kernel, ...]:
    return tuple(usable_kernels(op, "cuda", arch))


def _device(args: Sequence[Any]) -> torch.device:
    """That of the first tensor; lists of tensors are looked into."""
    for value in args:
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                return tensor.device
    return torch.device("cpu")


def operand_names(op: "OpDef") -> tuple[str, ...]:
    """Names of the positional arguments."""
    return tuple(a.name for a in op_schema(op.overload).arguments if not a.kwarg_only)


def defaults(op: "OpDef") -> dict[str, Any]:
    """Attributes that a call may leave out, with what they are then."""
    return {a.name: a.default_value for a in op_schema(op.overload).arguments if a.kwarg_only and a.has_default_value()}
