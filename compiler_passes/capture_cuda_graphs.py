"""Plans what a runner captures: the callables of the generation phase, per bucket, and how every input is refreshed.

The model's own code runs between the callables, so whoever owns the model captures; the plan is the contract. A plan
covers the whole phase or nothing: a step with one part left out cannot be replayed.
"""

from dataclasses import replace

from kvc.compiler_passes.infra import Miss, ProgramPass, Result, miss_at
from kvc.compiler_passes.select_kernels import is_kvc, kernel_of
from kvc.compiler_passes.stages import REFRESH_RULES, Refresh, Stage
from kvc.diagnostics import fail
from kvc.graphs.graph import Graph, qualified_name
from kvc.graphs.program import CapturePlan, CaptureRegion, Phase, Program

PHASE: Phase = "generation"
CONTEXT_NOTE = "context graphs are not captured: their number of tokens differs from step to step"


def plan_region(graph: Graph) -> CaptureRegion:
    """The region of one callable; KVC315 where an input has no refresh rule."""
    inputs: dict[str, Refresh] = {}
    for node in graph.placeholders:
        rule = REFRESH_RULES.get(node.meta["role"])
        if rule is None:
            raise fail("KVC315", f"{graph.name}: {qualified_name(node)} has no rule that refreshes it before a replay")
        inputs[qualified_name(node)] = rule
    return CaptureRegion(graph.name, PHASE, inputs)


def not_capturable(graph: Graph, device: str) -> tuple[Miss, ...]:
    """The calls whose kernel cannot be held by a captured graph on the device."""
    found = []
    for node in filter(is_kvc, graph.calls):
        kernel = kernel_of(node)
        if kernel is None:
            found.append(miss_at(graph, node, "no kernel is chosen"))
        elif device not in kernel.capturable:
            reason = f"kernel {kernel.name} cannot be captured on {device}: {kernel.summary}"
            found.append(miss_at(graph, node, reason))
    return tuple(found)


class CaptureCudaGraphs(ProgramPass):
    """Writes ``program.capture``; ``fired`` counts the regions. On a CPU a runner records the op list instead."""

    name = "capture_cuda_graphs"
    requires = Stage.SELECTED
    ensures = Stage.CAPTURED

    def run(self, program: Program) -> Result:
        """Plan every callable of the generation phase, or say which calls stand in the way."""
        graphs = [graph for name, graph in program.named_graphs().items() if name.endswith(f".{PHASE}")]
        misses = tuple(miss for graph in graphs for miss in not_capturable(graph, program.device))
        regions = () if misses else tuple(map(plan_region, graphs))
        plan = CapturePlan(program.buckets, regions) if regions else None
        sizes = ", ".join(map(str, program.buckets))
        return Result(
            program=replace(program, capture=plan),
            fired=len(regions),
            misses=misses,
            detail=f"buckets {sizes}" if plan else "",
            fired_in={region.callable: 1 for region in regions},
            notes=(CONTEXT_NOTE,),
        )
