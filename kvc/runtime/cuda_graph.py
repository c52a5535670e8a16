"""Captures a callable into a CUDA graph; what a graph cannot hold is a finding that names the op."""

import gc
from collections.abc import Callable
from typing import Any

import torch

from kvc.compat import TorchDispatchMode, end_failed_capture, op_schema
from kvc.diagnostics import KvcError, fail


class _LastOp(TorchDispatchMode):
    """Remembers the op that is running."""

    name = "the callable"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.name = str(op_schema(func).name)
        return func(*args, **(kwargs or {}))


class CudaGraphs:
    """Captures graphs on one stream into one memory pool: a graph's memory is that of the graphs before it.

    So one replay ends before the next begins, as on one stream they do.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, fn: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """The graph of ``fn()`` and the output that its replays refresh.

        ``fn`` has run before: kernels are compiled and libraries have their handles. KVC529 where the driver refuses an
        op: one that waits for the device, or takes memory that is not the pool's. Nothing is left of a capture that
        failed, but later ones have another pool.
        """
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        gc.collect()  # what is collected while capturing may free memory, which a capture forbids
        torch.cuda.empty_cache()
        with torch.no_grad(), torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool)
            try:
                output = _captured(fn, graph)
            except BaseException:
                end_failed_capture(graph, self._pool)
                self._pool = torch.cuda.graph_pool_handle()
                raise
        return graph, output


def _captured(fn: Callable[[], Any], graph: torch.cuda.CUDAGraph) -> Any:
    last = _LastOp()
    try:
        with last:
            output = fn()
        last.name = "the callable"
        graph.capture_end()
    except KvcError:
        raise
    except RuntimeError as error:
        raise _refused(last.name, error) from error
    return output


def _refused(op: str, error: RuntimeError) -> KvcError:
    reason = str(error).strip().splitlines()[0]
    where = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    help = "leave out what waits for the device or takes memory outside torch's allocator, or run it uncaptured"
    return fail("KVC529", f"{op}{where} cannot be held by a CUDA graph: {reason}", help=help)
