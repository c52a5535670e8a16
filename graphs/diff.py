"""Structural comparison of graphs and programs by their canonical text."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from kvc.graphs.graph import Graph
from kvc.graphs.program import Program
from kvc.graphs.text import print_graph


@dataclass(frozen=True)
class GraphDifference:
    """How one named graph changed: ``lines`` is a unified diff without file headers."""

    name: str
    change: str  # added | removed | changed
    lines: tuple[str, ...]

    @property
    def first(self) -> str:
        """The first differing line, marked."""
        return next((line for line in self.lines if line[0] in "+-"), "")


def comparison_text(graph: Graph | None) -> str:
    """Canonical text without the header and provenance: equal for graphs that compute the same way."""
    return print_graph(graph, comments=False).split("\n", 1)[1] if graph else ""


def diff_graphs(name: str, before: Graph | None, after: Graph | None) -> GraphDifference | None:
    """The difference of two graphs, None where they are equal; a missing side counts as added or removed."""
    old, new = comparison_text(before), comparison_text(after)
    if old == new:
        return None
    change = "added" if before is None else "removed" if after is None else "changed"
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
    return GraphDifference(name, change, tuple(line for line in lines if not line.startswith(("---", "+++"))))


def diff_programs(before: Program, after: Program) -> tuple[GraphDifference, ...]:
    """Every graph that differs, by name."""
    old: Mapping[str, Graph] = before.named_graphs()
    new: Mapping[str, Graph] = after.named_graphs()
    found = (diff_graphs(name, old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys()))
    return tuple(difference for difference in found if difference)
