"""What differs between two artifacts: memory, graphs, and the settings around them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvc.artifact import Artifact
from kvc.graphs.diff import GraphDifference, diff_programs
from kvc.graphs.program import Program
from kvc.plan.diff import Change, PlanDiff, diff_json, diff_plans
from kvc.report.plan_diff import change_table, plan_diff_table
from kvc.report.plan_table import layer_ranges

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
    bindings = _binding_changes(before.program, after.program)
    graphs = diff_programs(before.program, after.program)
    return ArtifactDiff(diff_plans(before.plan, after.plan), graphs, (*settings, *bindings))


def _settings(program: Program) -> dict[str, Any]:
    """The program's JSON without its name, its bindings, and what the plan and the graphs already say."""
    left_out = ("name", "signatures", "bindings", "capture")
    data = {key: value for key, value in program.to_json().items() if key not in left_out}
    return data | {"captured": [region.callable for region in program.capture.regions] if program.capture else []}


def _binding_changes(before: Program, after: Program) -> Iterator[Change]:
    """What layers are bound to, layers that changed alike taken together."""
    old, new = _bound(before), _bound(after)
    alike: dict[tuple[Any, Any], list[int]] = {}
    for layer in sorted(old.keys() | new.keys()):
        alike.setdefault((old.get(layer), new.get(layer)), []).append(layer)
    for (one, other), layers in alike.items():
        yield from diff_json(one and dict(one), other and dict(other), f"layers[{layer_ranges(layers)}]")


def _bound(program: Program) -> dict[int, tuple[tuple[str, str], ...]]:
    return {b.layer: (("signature", b.signature), *sorted(b.constants.items())) for b in program.bindings}
