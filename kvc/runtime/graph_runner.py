"""Captures a callable per bucket and replays it on fixed memory: as a CUDA graph, or on a CPU as one would.

The callable runs once op by op, which enforces the capture contract with a reason for what breaks it. On a GPU that is
the warm-up, and a CUDA graph is captured then, in one memory pool for all buckets. On a CPU the graph is the recorded
op list: a replay runs the same ops on the same buffers. A number that Python computes inside the callable is baked in.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kvc.compat import same_pointers, storage_id, tree_leaves
from kvc.diagnostics import KvcError, fail
from kvc.runtime.cuda_graph import CudaGraphs
from kvc.runtime.recorder import RecordedOp, Recorder

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class _Address:
    """Where a registered tensor lay at capture."""

    pointer: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "_Address":
        return cls(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


@dataclass(frozen=True)
class _Captured:
    """``run`` replays the work; ``tensors`` and ``pointers``: the registered tensors as they were at capture."""

    run: Callable[[], None]
    ops: tuple[str, ...]
    output: Any
    static: Tensors
    copied: Tensors
    addresses: dict[str, _Address]
    tensors: list[torch.Tensor]
    pointers: list[int]
    buffer_bytes: int


class GraphRunner:
    """Captured callables by bucket (any hashable key)."""

    def __init__(self) -> None:
        self._captured: dict[Hashable, _Captured] = {}
        self._graphs: CudaGraphs | None = None

    @property
    def buckets(self) -> tuple[Hashable, ...]:
        """Buckets captured so far."""
        return tuple(self._captured)

    def ops(self, bucket: Hashable) -> tuple[str, ...]:
        """Names of the ops that a replay runs, in order."""
        return self._find(bucket).ops

    def copied(self, bucket: Hashable) -> Tensors:
        """The copied tensors of a bucket, to fill in place before a replay. KVC525 if it is not captured."""
        return dict(self._find(bucket).copied)

    def buffer_bytes(self, bucket: Hashable) -> int:
        """Bytes of what the bucket's ops produced; a CUDA graph reuses them within the step."""
        return self._find(bucket).buffer_bytes

    def capture(self, bucket: Hashable, fn: Callable[[], Any], static: Tensors, copied: Tensors) -> Any:
        """Run ``fn()`` once, recording it, and return its output: tensors in any nesting, valid until the next replay.

        ``static``: tensors whose memory stays where it is (weights, pools, constants). The mapping itself is kept and
        read again at every replay, so replacing an entry is noticed. ``copied``: tensors that get a new value at each
        replay. Both cover views of them. ``fn`` really runs: let it work on padding (`Cache.padding_step`) to leave
        pools alone; on a GPU it runs a second time, captured. Errors: KVC520 (a tensor with no rule), KVC521 (read on
        the host), KVC522 (random numbers), KVC523 (an op with no fixed shape), KVC525 (bucket captured already, a
        tensor that cannot be registered), KVC529 (an op that a CUDA graph cannot hold).
        """
        if bucket in self._captured:
            raise fail("KVC525", f"bucket {bucket!r} is captured already")
        registered = _register(static, copied)
        recorder = Recorder(registered)
        addresses = {name: _Address.of(tensor) for name, tensor in registered.items()}
        with recorder.recording():
            output = fn()
        _check_output(output, recorder)
        run, output = self._graph(fn, recorder, output, registered)
        self._captured[bucket] = _Captured(
            run,
            tuple(str(op.op) for op in recorder.ops),
            output,
            static,
            dict(copied),
            addresses,
            list(registered.values()),
            [tensor.data_ptr() for tensor in registered.values()],
            sum(buffer.untyped_storage().nbytes() for buffer in recorder.buffers),
        )
        return output

    def _graph(
        self, fn: Callable[[], Any], recorder: Recorder, output: Any, registered: Tensors
    ) -> tuple[Callable[[], None], Any]:
        """What replays the recorded work, and the output that it refreshes."""
        device = next((tensor.device for tensor in registered.values()), torch.device("cpu"))
        if device.type == "cpu":
            ops = tuple(recorder.ops)
            return lambda: _replay_ops(ops), output
        self._graphs = self._graphs or CudaGraphs(device)
        graph, output = self._graphs.capture(fn)
        return graph.replay, output

    def replay(self, bucket: Hashable, values: Tensors) -> Any:
        """Copy ``values`` into the copied tensors, run the recorded ops, return the output of `capture`, refreshed.

        ``values`` has one entry for each copied tensor; passing the registered tensor itself says that it was already
        filled in place. All values are read before the first copy. Errors: KVC524 (a value missing, unknown or of
        another shape; memory that has moved), KVC525 (bucket not captured).
        """
        captured = self._find(bucket)
        _check_addresses(captured)
        if not _are_in_place(captured.copied, values):
            _check_values(captured.copied, values)
            with torch.no_grad():
                for name, value in _read(captured.copied, values).items():
                    captured.copied[name].copy_(value, non_blocking=True)
        captured.run()
        return captured.output

    def _find(self, bucket: Hashable) -> _Captured:
        if bucket not in self._captured:
            raise fail("KVC525", f"bucket {bucket!r} is not captured; captured: {list(self._captured)}")
        return self._captured[bucket]


def _register(static: Tensors, copied: Tensors) -> dict[str, torch.Tensor]:
    both = sorted(static.keys() & copied.keys())
    if both:
        raise fail("KVC525", f"{both[0]!r} is registered as static and as copied")
    registered = {**static, **copied}
    for name, tensor in registered.items():
        if not isinstance(tensor, torch.Tensor):
            raise fail("KVC525", f"{name!r} is {type(tensor).__name__}, not a tensor")
    devices = {tensor.device for tensor in registered.values()}
    if len(devices) > 1 or not all(device.type in ("cpu", "cuda") for device in devices):
        where = ", ".join(f"{name!r} on {tensor.device}" for name, tensor in list(registered.items())[:4])
        raise fail("KVC525", f"tensors of one capture are on one CPU or GPU, not {where}")
    return registered


def _replay_ops(ops: tuple[RecordedOp, ...]) -> None:
    with torch.no_grad():
        for op in ops:
            op.replay()


def _check_output(output: Any, recorder: Recorder) -> None:
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and not recorder.knows(leaf):
            raise fail("KVC520", "the callable returns a tensor that is neither registered nor derived in the graph")
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            message = f"the callable returns {type(leaf).__name__} {leaf!r}, which a replay cannot refresh"
            raise fail("KVC521", message, help="return tensors only")


def _check_addresses(captured: _Captured) -> None:
    """Raise KVC524 where a registered tensor is another one, or is not where it was."""
    now = [*captured.static.values(), *captured.copied.values()]
    if _are_the_same(now, captured.tensors) and same_pointers(now, captured.pointers):
        return
    for name, at_capture in captured.addresses.items():
        tensor = captured.copied.get(name, captured.static.get(name))
        if not isinstance(tensor, torch.Tensor):
            raise _moved(name, "is no longer registered")
        if _Address.of(tensor) != at_capture:
            raise _moved(name, "is not where it was at capture")


def _are_the_same(now: list[torch.Tensor], at_capture: list[torch.Tensor]) -> bool:
    """Lists compare items by identity first, and so fast; another tensor of one equal number lies somewhere else."""
    try:
        return now == at_capture
    except RuntimeError:  # of torch, comparing the numbers of two tensors
        return False


def _moved(name: str, what: str) -> KvcError:
    help = "write new values into the registered tensor, or capture again"
    return fail("KVC524", f"static or copied tensor {name!r} {what}", help=help)


def _are_in_place(copied: Tensors, values: Tensors) -> bool:
    """Whether the values are the registered tensors themselves, filled already."""
    return len(values) == len(copied) and all(values.get(name) is target for name, target in copied.items())


def _check_values(copied: Tensors, values: Tensors) -> None:
    missing, unknown = sorted(copied.keys() - values.keys()), sorted(values.keys() - copied.keys())
    if missing:
        raise fail("KVC524", f"no value for copied tensor {missing[0]!r}: the replay would read the last step's")
    if unknown:
        raise fail("KVC524", f"{unknown[0]!r} is not a copied tensor; copied: {sorted(copied)}")
    for name, target in copied.items():
        if (values[name].shape, values[name].dtype) != (target.shape, target.dtype):
            got = f"{values[name].dtype} {list(values[name].shape)}"
            raise fail("KVC524", f"{name!r} is {got}, captured as {target.dtype} {list(target.shape)}")


def _read(copied: Tensors, values: Tensors) -> Tensors:
    """What has to be copied; a value that lies in registered memory is taken out of the way of the copies."""
    registered = {storage_id(target) for target in copied.values()}
    return {
        name: value.clone() if storage_id(value) in registered else value
        for name, value in values.items()
        if value is not copied[name]
    }
