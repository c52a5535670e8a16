"""Structural comparison of graphs and programs."""

import difflib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kvc.graphs.graph import Graph
from kvc.graphs.program import Program
from kvc.graphs.text import print_graph

_RESULT = re.compile(r"(%\d+): ")
_VALUE = re.compile(r"%\d+")


@dataclass(frozen=True)
class GraphDifference:
    """How one named graph changed: ``lines`` is a unified diff of readable lines, without file headers."""

    name: str
    change: str  # added | removed | changed
    lines: tuple[str, ...]

    @property
    def first(self) -> str:
        """The first differing line, marked."""
        return next((line for line in self.lines if line[0] in "+-"), "")


def readable_lines(graph: Graph | None) -> list[str]:
    """Canonical lines with values named after what made them instead of numbered, so that an inserted value does not
    change every line below it: `rope.0: f32[T, 6, 16] = kvc.rope(input.q, table.rope, ...)`.

    No header and no provenance: equal for graphs that compute the same way; empty for None.
    """
    names: dict[str, str] = {}
    calls: Counter[str] = Counter()
    lines = print_graph(graph, comments=False).splitlines()[1:] if graph else []
    return [_readable(line, names, calls) for line in lines]


def _readable(line: str, names: dict[str, str], calls: Counter[str]) -> str:
    left, equals, right = line.strip().partition(" = ")
    if not equals:
        return _VALUE.sub(lambda value: names[value[0]], line.strip())
    maker = re.split(r"[( ]", right, maxsplit=1)[0]
    if not right.startswith(f"{maker}("):  # a placeholder, and codes that it may hold
        names[_RESULT.findall(left)[0]] = maker
        return _VALUE.sub(maker, left) + right.removeprefix(maker)
    right = _VALUE.sub(lambda value: names[value[0]], right)
    calls[maker] += 1
    call = maker.split(".")[1] + (f"#{calls[maker]}" if calls[maker] > 1 else "")
    names.update((number, f"{call}.{index}") for index, number in enumerate(_RESULT.findall(left)))
    return f"{_VALUE.sub(lambda value: names[value[0]], left)} = {right}"


def diff_graphs(name: str, before: Graph | None, after: Graph | None) -> GraphDifference | None:
    """The difference of two graphs, None where they are equal; a missing side counts as added or removed."""
    old, new = readable_lines(before), readable_lines(after)
    if old == new:
        return None
    change = "added" if before is None else "removed" if after is None else "changed"
    lines = difflib.unified_diff(old, new, lineterm="", n=1)
    return GraphDifference(name, change, tuple(line for line in lines if not line.startswith(("---", "+++"))))


def diff_programs(before: Program, after: Program) -> tuple[GraphDifference, ...]:
    """Every graph that differs, by name."""
    old: Mapping[str, Graph] = before.named_graphs()
    new: Mapping[str, Graph] = after.named_graphs()
    found = (diff_graphs(name, old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys()))
    return tuple(difference for difference in found if difference)
