"""The ops as rows of one table, and their one registration in the `kvc` namespace.

An `OpDef` is built in the op's own folder; `kvc.ops` collects them. Registration goes through `torch.library.Library`
(5-10 us a call where `custom_op` costs 20-40). On a CPU the reference runs; on a GPU what `kvc.ops.kernels` chooses.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from kvc.compat import op_schema
from kvc.ops import kernels
from kvc.ops.example_inputs import Example, Shape

NAMESPACE = "kvc"


def _no_values(*args: Any, **kwargs: Any) -> None:
    """The value check of an op any value suits."""


def _no_scratch(*args: Any, **kwargs: Any) -> int:
    """The scratch of an op that needs none."""
    return 0


@dataclass(frozen=True, eq=False)
class OpDef:
    """One op.

    ``schema`` is the definition string. ``check`` reads shapes and dtypes and may see fake tensors; ``check_values``
    reads the data of real ones. ``fake`` makes empty outputs, ``reference`` is the oracle and the generic kernel.
    ``example(shape)`` gives ``(args, kwargs)`` of a valid call; ``scratch`` the bytes that a kernel needs for a call,
    whose tensors may be on the meta device, beside its results.
    """

    schema: str
    check: Callable[..., Any]
    fake: Callable[..., Any]
    reference: Callable[..., Any]
    example: Callable[[Shape], Example]
    check_values: Callable[..., None] = _no_values
    scratch: Callable[..., int] = _no_scratch
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.schema.partition("(")[0])

    @property
    def mutates(self) -> tuple[str, ...]:
        """Names of the arguments written in place."""
        return tuple(a.name for a in op_schema(self.overload).arguments if a.alias_info and a.alias_info.is_write)

    @property
    def overload(self) -> Any:
        """What to call and to match in a graph: ``torch.ops.kvc.<name>.default``."""
        return getattr(torch.ops.kvc, self.name).default

    @property
    def folder(self) -> str:
        """The package that holds the op: `kvc.ops.rope`."""
        return self.reference.__module__.rpartition(".")[0]

    @cached_property
    def operand_names(self) -> tuple[str, ...]:
        """Names of the positional arguments."""
        return kernels.operand_names(self)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Attributes that a call may leave out, with what they are then."""
        return kernels.defaults(self)

    @property
    def doc(self) -> str:
        """Shapes, dtypes, units, errors and source of the semantics: the docstring of the reference."""
        return self.reference.__doc__ or ""


def _checked(op: OpDef) -> Callable[..., Any]:
    check, check_values, reference = op.check, op.check_values, op.reference

    def run(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        check_values(*args, **kwargs)
        return reference(*args, **kwargs)

    return run


def _checked_fake(op: OpDef) -> Callable[..., Any]:
    check, fake = op.check, op.fake

    def run(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return fake(*args, **kwargs)

    return run


def register(ops: Iterable[OpDef]) -> tuple[torch.library.Library, dict[str, OpDef]]:
    """Define the ops in the `kvc` namespace, once a process.

    Returns the library, which must stay alive as long as the ops are called, and the ops by name.
    """
    library = torch.library.Library(NAMESPACE, "DEF")
    table = {op.name: op for op in ops}
    for op in table.values():
        library.define(op.schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(op.name, _checked(op), "CPU")
        library.impl(op.name, kernels.on_cuda(op), "CUDA")
        torch.library.register_fake(f"{NAMESPACE}::{op.name}", _checked_fake(op), lib=library)
    return library, table
