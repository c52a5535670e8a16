"""Captures a callable into a CUDA graph; what a graph cannot hold is a finding that names the op."""

import gc
from collections.abc import Callable
from typing import Any

import torch

from kvc.compat import TorchDispatchMode, end_failed_capture, op_schema
from kvc.diagnostics import KvcError, fail

Pool = Any  # the handle of a memory pool, opaque


class _LastOp(TorchDispatchMode):
    """Remembers the op that is running."""

    name = "the callable"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.name = str(op_schema(func).name)
        return func(*args, **(kwargs or {}))


def capture_graph(fn: Callable[[], Any], pool: Pool) -> tuple[torch.cuda.CUDAGraph, Any]:
    """The graph of ``fn()``, whose memory comes from ``pool``, and the output that its replays refresh.

    ``fn`` has run before: kernels are compiled and libraries have their handles. It runs on a stream of its own. KVC529
    where the driver refuses an op: one that waits for the device, or takes memory that is not the pool's. Nothing is
    left of a capture that failed.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    gc.collect()  # what is collected while capturing may free memory, which a capture forbids
    torch.cuda.empty_cache()
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(pool=pool)
        output = _captured(fn, graph, pool)
    return graph, output


def _captured(fn: Callable[[], Any], graph: torch.cuda.CUDAGraph, pool: Pool) -> Any:
    last = _LastOp()
    try:
        with last:
            output = fn()
        last.name = "the callable"
        graph.capture_end()
    except BaseException as error:
        end_failed_capture(graph, pool)
        if isinstance(error, KvcError) or not isinstance(error, RuntimeError):
            raise
        raise _refused(last.name, error) from error
    return output


def _refused(op: str, error: RuntimeError) -> KvcError:
    reason = str(error).strip().splitlines()[0]
    where = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    help = "leave out what waits for the device or takes memory outside torch's allocator, or run it uncaptured"
    return fail("KVC529", f"{op}{where} cannot be held by a CUDA graph: {reason}", help=help)
