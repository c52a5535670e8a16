"""Chooses the implementation of every op from the capability table, by device, architecture and call."""

from collections.abc import Iterator

import torch.fx
from torch.fx.node import map_arg

from kvc.capabilities import KERNELS, Kernel
from kvc.compiler_passes.infra import GraphPass, Rewritten, line_of
from kvc.compiler_passes.stages import Stage
from kvc.diagnostics import KvcError, fail
from kvc.graphs.graph import Graph, op_name
from kvc.graphs.program import Program
from kvc.ops import OPS
from kvc.ops.kernels import facts, refused, usable_kernels


def kernel_of(node: torch.fx.Node) -> Kernel | None:
    """The capability row of the kernel that a call was given; None for torch's own ops."""
    op = op_name(node.target).removeprefix("kvc.")
    return next((k for k in KERNELS if k.op == op and k.name == node.meta.get("kernel")), None)


def _why_not(kernel: Kernel, node: torch.fx.Node) -> str:
    """Why a kernel does not take a call; empty if it does."""
    if not kernel.takes:
        return ""
    args = map_arg(node.args, lambda value: value.meta["val"])
    return refused(kernel, facts(OPS[kernel.op], args, dict(node.kwargs)))


def is_kvc(node: torch.fx.Node) -> bool:
    """Whether the op is one of kvc's, which has kernels to choose from."""
    return op_name(node.target).startswith("kvc.")


class SelectKernels(GraphPass):
    """Names a kernel in ``meta["kernel"]`` of every kvc call."""

    name = "select_kernels"
    requires = Stage.HOISTED
    ensures = Stage.SELECTED

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Choose for each call; KVC314 where an op has no kernel on the device."""
        work = graph.copy()
        chosen = {node: self._choose(graph, node, program) for node in filter(is_kvc, graph.calls)}
        for node, kernel in zip(filter(is_kvc, work.calls), chosen.values(), strict=True):
            node.meta["kernel"] = kernel.name
        notes = tuple(dict.fromkeys(self._generic(graph, chosen, program)))
        return Rewritten(work if chosen else graph, len(chosen), notes=notes)

    def _choose(self, graph: Graph, node: torch.fx.Node, program: Program) -> Kernel:
        op = op_name(node.target).removeprefix("kvc.")
        found = [k for k in usable_kernels(op, program.device, program.arch) if not _why_not(k, node)]
        if not found:
            raise self._no_kernel(graph, node, op, program)
        return found[0]

    def _generic(self, graph: Graph, chosen: dict[torch.fx.Node, Kernel], program: Program) -> Iterator[str]:
        """Notes on calls that run plain torch on a GPU, with what the kernels for it say about the call."""
        for node, kernel in chosen.items():
            if program.device == "cuda" and kernel.archs is None:
                rows = [k for k in usable_kernels(kernel.op, program.device, program.arch) if k is not kernel]
                why = "; ".join(f"{row.name}: {_why_not(row, node)}" for row in rows)
                yield f"{kernel.op} takes the generic kernel on {program.arch}" + (f" ({why})" if why else "")

    def _no_kernel(self, graph: Graph, node: torch.fx.Node, op: str, program: Program) -> KvcError:
        place = f"{program.device} {program.arch}" if program.arch else program.device
        rows = [kernel for kernel in KERNELS if kernel.op == op]
        where = sorted({f"{d} {a}" if a else d for k in rows for d in k.devices for a in k.archs or ("",)})
        known = f"kernels of {op}: {', '.join(where)}" if where else f"no kernel of {op} exists at all"
        line = line_of(graph, node)
        return fail("KVC314", f"op {op} has no kernel for {place}: {graph.name}: {line}", help=known)
