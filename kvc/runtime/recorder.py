"""Records the op list of a callable and enforces the capture contract while it runs.

Every tensor an op reads must be registered (static, or copied each step) or come from an op recorded before: a tensor
made from host data inside the callable would be frozen at its first value. For the same reason nothing may be read back
by the host, no shape may depend on data, and no random number may be drawn.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kvc.compat import TorchDispatchMode, op_schema, storage_id, tree_leaves
from kvc.diagnostics import KvcError, fail

# Tensor methods that read values on the host below the dispatcher, where the recorder would not see them.
_HOST_READS = frozenset(
    {
        "item",
        "tolist",
        "numpy",
        "__array__",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__contains__",
    }
    | {"__dlpack__", "__repr__", "__format__", "__str__"}
)
_MASKS = (torch.bool, torch.uint8)  # dtypes of indices that select where they are not 0
_EMPTY = frozenset(
    {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided"}
)


@dataclass(frozen=True)
class RecordedOp:
    """One op call on fixed memory; ``fresh`` are the results to copy into their buffers after running it again."""

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    fresh: tuple[tuple[int, torch.Tensor], ...]

    def replay(self) -> None:
        """Run the op again and put its new results where later ops read them; KVC524 if their shape has changed."""
        results = _results(self.op(*self.args, **self.kwargs))
        for index, buffer in self.fresh:
            if results[index].shape != buffer.shape:
                message = f"{_name(self.op)} gave {list(results[index].shape)}, captured as {list(buffer.shape)}"
                raise fail("KVC524", message, help="a captured callable has fixed shapes: capture another bucket")
            buffer.copy_(results[index])


class Recorder:
    """Ops of one callable, in order. ``registered``: name -> tensor that it may read, with any view of it."""

    def __init__(self, registered: Mapping[str, torch.Tensor]) -> None:
        self.ops: list[RecordedOp] = []
        self.buffers: list[torch.Tensor] = []
        self._known = {storage_id(tensor) for tensor in registered.values()}
        self._inside = False
        self._literals: list[torch.Tensor] | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While active, every op is checked, run and recorded."""
        with torch.no_grad(), _HostReads(self), _Dispatch(self):
            yield

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is registered, derived, or a view of such a one."""
        return storage_id(tensor) in self._known

    @contextmanager
    def writing_number(self) -> Iterator[None]:
        """While active (`x[0] = 1`), torch makes a tensor of a Python number, baked in like any other number."""
        self._literals = []
        yield
        self.buffers += self._literals
        self._literals = None

    def record(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Check, run and note one op call."""
        _check_op(op, args, kwargs)
        if self._literals is not None and op is torch.ops.aten.lift_fresh.default:
            self._literals.append(args[0])
            self._known.add(storage_id(args[0]))
        self._check_reads(op, args, kwargs)
        self._inside = True
        try:
            result = op(*args, **kwargs)
        finally:
            self._inside = False
        self._note(op, args, kwargs, _results(result))
        return result

    def host_read(self, name: str) -> None:
        """Refuse a read of values outside the dispatcher; the ops' own implementations may."""
        if not self._inside:
            raise _host_read(name)

    def _check_reads(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for name, value in _named_arguments(op, args, kwargs):
            for tensor in tree_leaves(value):
                if isinstance(tensor, torch.Tensor) and not self.knows(tensor):
                    raise _no_rule(op, name, tensor)

    def _note(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: tuple[Any, ...]) -> None:
        inputs = {storage_id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        fresh = [
            (index, result)
            for index, result in enumerate(results)
            if isinstance(result, torch.Tensor) and storage_id(result) not in inputs
        ]
        self._known.update(storage_id(result) for _, result in fresh)
        self.buffers += [result for _, result in fresh]
        # A view keeps its address and an empty buffer is filled by later ops: neither needs to run again.
        if op_schema(op).is_mutable or (fresh and op_schema(op).name not in _EMPTY):
            self.ops.append(RecordedOp(op, args, kwargs, tuple(fresh)))


class _Dispatch(TorchDispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._recorder.record(func, args, kwargs or {})


class _HostReads(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _HOST_READS and getattr(torch.Tensor, name, None) is func:
            self._recorder.host_read(f"Tensor.{name}")
        if func is torch.Tensor.__setitem__ and isinstance(args[2], int | float | bool):
            with self._recorder.writing_number():
                return func(*args)
        return func(*args, **(kwargs or {}))


def _results(value: Any) -> tuple[Any, ...]:
    """Results of an op as a flat tuple; lists of tensors are unfolded."""
    return tuple(tree_leaves(value))


def _name(op: Any) -> str:
    return str(op_schema(op).name)


def _named_arguments(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for argument, value in zip(op_schema(op).arguments, args, strict=False):
        yield argument.name, value
    yield from kwargs.items()


def _no_rule(op: Any, argument: str, tensor: torch.Tensor) -> KvcError:
    what = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return fail(
        "KVC520",
        f"{_name(op)} reads {what} as {argument!r}, which is neither static, copied each step nor derived in the graph",
        help="register it as static, or as copied and give its value at every replay",
    )


def _host_read(name: str) -> KvcError:
    return fail(
        "KVC521",
        f"{name} reads a tensor on the host while capturing: a replay would keep the value it has now",
        help="compute it with ops inside the graph, or pass it in as a copied tensor",
    )


def _check_op(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse ops that a replay could not repeat; rules are tried in order."""
    for refused, error in _RULES:
        if refused(op, args, kwargs):
            raise error(_name(op))


def _reads_host(op: Any, args: Any, kwargs: Any) -> bool:
    """Results that are no tensors (`.item()`, `torch.equal`) were read back."""
    plain = [str(result.type) for result in op_schema(op).returns]
    return any("Tensor" not in kind for kind in plain)


def _is_random(op: Any, args: Any, kwargs: Any) -> bool:
    """Ops that draw from a generator; an attention or dropout whose probability is 0 draws nothing."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    defaults = {argument.name: argument.default_value for argument in op_schema(op).arguments}
    return (defaults | dict(_named_arguments(op, args, kwargs))).get("dropout_p") != 0.0


def _has_dynamic_shape(op: Any, args: Any, kwargs: Any) -> bool:
    """By the op's tag, except that indexing has a fixed shape where no index is a mask."""
    if _name(op) == "aten::index":
        indices = dict(_named_arguments(op, args, kwargs))["indices"]
        return any(index is not None and index.dtype in _MASKS for index in indices)
    return torch.Tag.dynamic_output_shape in op.tags


def _changes_metadata(op: Any, args: Any, kwargs: Any) -> bool:
    return torch.Tag.inplace_view in op.tags


_RULES: tuple[tuple[Callable[[Any, Any, Any], bool], Callable[[str], KvcError]], ...] = (
    (_reads_host, _host_read),
    (
        _is_random,
        lambda name: fail("KVC522", f"{name} draws random numbers", help="sample outside the captured callable"),
    ),
    (
        _has_dynamic_shape,
        lambda name: fail("KVC523", f"the shape that {name} returns depends on data", help="use a masked form"),
    ),
    (
        _changes_metadata,
        lambda name: fail(
            "KVC523", f"{name} changes a tensor's shape in place", help="use the form that returns a view"
        ),
    ),
)
