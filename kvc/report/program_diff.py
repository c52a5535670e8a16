"""What differs between two artifacts: memory, graphs, and the settings around them."""

from dataclasses import dataclass
from typing import Any

from kvc.artifact import Artifact
from kvc.graphs.diff import GraphDifference, diff_programs
from kvc.graphs.program import Program
from kvc.plan.diff import Change, PlanDiff, diff_json, diff_plans
from kvc.report.plan_diff import change_table, plan_diff_table

_SHOWN = 20  # settings listed for people; the JSON has all


@dataclass(frozen=True)
class ArtifactDiff:
    """All differences; names, provenance and times are none."""

    memory: PlanDiff
    graphs: tuple[GraphDifference, ...]
    settings: tuple[Change, ...]

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same bytes in the same places and run the same graphs on them."""
        return self.memory.equal and not self.graphs and not self.settings

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "equal": self.equal,
            "memory": self.memory.to_json(),
            "graphs": [{"name": d.name, "change": d.change, "lines": list(d.lines)} for d in self.graphs],
            "settings": [change.to_json() for change in self.settings],
        }

    def text(self) -> str:
        """For people: memory, settings, then each graph as a unified diff; without a final newline."""
        return "\n\n".join((plan_diff_table(self.memory), self._settings(), *self._graphs()))

    def _settings(self) -> str:
        if not self.settings:
            return "settings: equal"
        names = (self.memory.before, self.memory.after)
        rest = len(self.settings) - _SHOWN
        shown = change_table("setting", names, self.settings[:_SHOWN])
        return f"{shown}\n.. and {rest} more; --json lists all" if rest > 0 else shown

    def _graphs(self) -> list[str]:
        if not self.graphs:
            return ["graphs: equal"]
        return ["\n".join((f"graph {d.name}: {d.change}", *(f"  {line}" for line in d.lines))) for d in self.graphs]


def compare(before: Artifact, after: Artifact) -> ArtifactDiff:
    """Compare plans, graphs and settings."""
    settings = diff_json(_settings(before.program), _settings(after.program))
    graphs = diff_programs(before.program, after.program)
    return ArtifactDiff(diff_plans(before.plan, after.plan), graphs, tuple(settings))


def _settings(program: Program) -> dict[str, Any]:
    """The program's JSON with bindings by layer, without its name and what the plan and the graphs already say."""
    data = {key: value for key, value in program.to_json().items() if key not in ("name", "signatures")}
    return data | {"bindings": {str(binding["layer"]): binding for binding in data["bindings"]}}
