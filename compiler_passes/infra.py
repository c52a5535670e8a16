"""The two kinds of compiler passes and what they report.

Passes are pure: they copy the graphs they change and hand the others on as they are, so a graph that is the same object
before and after is known to be unchanged.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch.fx

from kvc.compiler_passes.stages import Stage
from kvc.diagnostics import Source
from kvc.graphs.graph import Graph
from kvc.graphs.program import Program
from kvc.graphs.text import node_lines


@dataclass(frozen=True)
class Miss:
    """Why a pass left something as it is: at ``at``, the canonical line of the nearest node with its spec line."""

    graph: str
    at: str
    reason: str

    def __str__(self) -> str:
        return f"{self.graph}: {self.reason}\n    at {self.at}"

    @property
    def source(self) -> Source | None:
        """The spec line that the nearest node cites."""
        path, _, line = self.at.rpartition("  # ")[2].rpartition(":")
        return Source(path, int(line)) if path and line.isdigit() else None

    def to_json(self) -> dict[str, str]:
        """Plain data for the manifest."""
        return {"graph": self.graph, "at": self.at, "reason": self.reason}


def miss_at(graph: Graph, node: torch.fx.Node, reason: str) -> Miss:
    """A miss whose nearest node is ``node`` of ``graph``."""
    return Miss(graph.name, line_of(graph, node), reason)


def line_of(graph: Graph, node: torch.fx.Node) -> str:
    """The canonical line that holds ``node``, its spec line included; FX's own form in a graph too broken for that."""
    try:
        return node_lines(graph)[node]
    except (AttributeError, ValueError):
        return node.format_node() or node.name


@dataclass(frozen=True)
class Rewritten:
    """What a pass made of one graph; ``graph`` is the given object where nothing changed.

    ``counts`` says by kind what ``fired`` adds up, for passes that do several things.
    """

    graph: Graph
    fired: int = 0
    misses: tuple[Miss, ...] = ()
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a pass made of a program.

    ``fired`` counts rewrites (or whatever the pass does), ``fired_in`` the same by graph name. ``misses`` are places
    where it might be expected to fire and did not; ``notes`` are remarks that are no misses.
    """

    program: Program
    fired: int
    misses: tuple[Miss, ...] = ()
    detail: str = ""
    fired_in: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class ProgramPass(ABC):
    """A pass over a whole program.

    ``requires`` is the stage that the program must have reached, ``ensures`` the stage it has reached afterwards;
    ``optional``: a program is complete without the pass.
    """

    name: ClassVar[str]
    requires: ClassVar[Stage]
    ensures: ClassVar[Stage]
    optional: ClassVar[bool] = False

    @abstractmethod
    def run(self, program: Program) -> Result:
        """The rewritten program; the given one is left alone."""

    def nearest(self, program: Program) -> tuple[Miss, ...]:
        """Where the pass would have come closest to firing, for a required pass without a miss to cite."""
        return ()


class GraphPass(ProgramPass):
    """A pass that looks at one graph at a time, lifted over layer graphs and prologues."""

    @abstractmethod
    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """The rewritten graph; ``program`` is for its device and dtypes."""

    def run(self, program: Program) -> Result:
        """Rewrite every graph and add up what fired, by graph name."""
        made = {name: self.rewrite(graph, program) for name, graph in program.named_graphs().items()}
        return Result(
            program=replace_graphs(program, {name: one.graph for name, one in made.items()}),
            fired=sum(one.fired for one in made.values()),
            misses=tuple(miss for one in made.values() for miss in one.misses),
            detail=_sum_counts(one.counts for one in made.values()),
            fired_in={name: one.fired for name, one in made.items() if one.fired},
            notes=tuple(dict.fromkeys(note for one in made.values() for note in one.notes)),
        )


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> str:
    """`2 dead, 12 moved`."""
    total = sum(map(Counter, counts), Counter())
    return ", ".join(f"{count} {kind}" for kind, count in total.items())


def replace_graphs(program: Program, graphs: Mapping[str, Graph]) -> Program:
    """The program with its graphs replaced by name (`gqa0.generation`)."""
    layers = {key: graphs[f"{key[0]}.{key[1]}"] for key in program.graphs}
    prologues = {phase: graphs[f"prologue.{phase}"] for phase in program.prologues}
    return replace(program, graphs=layers, prologues=prologues)


def count_calls(program: Program) -> int:
    """Op calls over all graphs of a program."""
    return sum(len(graph.calls) for graph in program.named_graphs().values())
