"""Plans the memory that a step's calls need beside pools, inputs and outputs: one workspace, reused by every graph.

Values of one graph that live at the same time get different places in it; graphs run one after another, so the
workspace is as large as the largest of them, at the target's limits.
"""

from dataclasses import replace

from kvc.compiler_passes.infra import ProgramPass, Result
from kvc.compiler_passes.liveness import limits, live_values, place
from kvc.compiler_passes.stages import Stage
from kvc.graphs.program import Program, Region, Workspace


def plan(program: Program) -> Workspace:
    """Places for the values of every graph."""
    sizes = limits(program)
    regions: list[Region] = []
    for name, graph in program.named_graphs().items():
        regions += place(name, live_values(graph, sizes))
    return Workspace(max((region.end for region in regions), default=0), tuple(regions))


class PlanWorkspace(ProgramPass):
    """Writes ``program.workspace``; ``fired`` counts the values that have a place."""

    name = "plan_workspace"
    requires = Stage.SELECTED
    ensures = Stage.SELECTED

    def run(self, program: Program) -> Result:
        """Plan the workspace of all graphs."""
        workspace = plan(program)
        counted = [region.graph for region in workspace.regions]
        return Result(
            program=replace(program, workspace=workspace),
            fired=len(counted),
            detail=f"{workspace.bytes:,} bytes",
            fired_in={name: counted.count(name) for name in dict.fromkeys(counted)},
        )
