"""Captures a callable into a CUDA graph; what a graph cannot hold is a finding that names the op."""

from collections.abc import Callable
from typing import Any

import torch

from kvc.compat import TorchDispatchMode, op_schema
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

    ``fn`` has run before: kernels are compiled and libraries have their handles. KVC529 where the driver refuses an op:
    one that waits for the device, or takes memory that is not the pool's.
    """
    graph, last = torch.cuda.CUDAGraph(), _LastOp()
    try:
        with torch.no_grad(), torch.cuda.graph(graph, pool=pool), last:
            output = fn()
    except KvcError:
        raise
    except RuntimeError as error:
        torch.cuda.synchronize()
        raise _refused(last.name, error) from error
    return graph, output


def _refused(op: str, error: RuntimeError) -> KvcError:
    reason = str(error).strip().splitlines()[0]
    help = "leave out what waits for the device or takes memory outside torch's allocator, or run it uncaptured"
    return fail("KVC529", f"{op} cannot be held by a CUDA graph: {reason}", help=help)
