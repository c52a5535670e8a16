"""Chooses the implementation of every op from the capability table, by device and architecture."""

import torch.fx

from kvc.capabilities import KERNELS, Kernel
from kvc.compiler_passes.infra import GraphPass, Rewritten, line_of
from kvc.compiler_passes.stages import Stage
from kvc.diagnostics import KvcError, fail
from kvc.graphs.graph import Graph, op_name
from kvc.graphs.program import Program


def kernels_for(op: str, device: str, arch: str | None) -> list[Kernel]:
    """The kernels of an op on a device, those made for the architecture before generic ones."""
    usable = [k for k in KERNELS if k.op == op and device in k.devices and (k.archs is None or arch in k.archs)]
    return sorted(usable, key=lambda kernel: kernel.archs is None)


def kernel_of(node: torch.fx.Node) -> Kernel | None:
    """The capability row of the kernel that a call was given; None for torch's own ops."""
    op = op_name(node.target).removeprefix("kvc.")
    return next((k for k in KERNELS if k.op == op and k.name == node.meta.get("kernel")), None)


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
        generic = sorted({kernel.op for kernel in chosen.values() if kernel.archs is None and program.device == "cuda"})
        notes = tuple(f"{op} takes the generic kernel on {program.arch}" for op in generic)
        return Rewritten(work if chosen else graph, len(chosen), notes=notes)

    def _choose(self, graph: Graph, node: torch.fx.Node, program: Program) -> Kernel:
        op = op_name(node.target).removeprefix("kvc.")
        found = kernels_for(op, program.device, program.arch)
        if not found:
            raise self._no_kernel(graph, node, op, program)
        return found[0]

    def _no_kernel(self, graph: Graph, node: torch.fx.Node, op: str, program: Program) -> KvcError:
        place = f"{program.device} {program.arch}" if program.arch else program.device
        rows = [kernel for kernel in KERNELS if kernel.op == op]
        where = sorted({f"{d} {a}" if a else d for k in rows for d in k.devices for a in k.archs or ("",)})
        known = f"kernels of {op}: {', '.join(where)}" if where else f"no kernel of {op} exists at all"
        line = line_of(graph, node)
        return fail("KVC314", f"op {op} has no kernel for {place}: {graph.name}: {line}", help=known)
