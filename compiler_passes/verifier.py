"""Checks a program after every pass against the rules and the tables of `stages`; nothing illegal gets further.

A violation is a bug of kvc (or of a text that a test or an artifact brings), so each names the pass, the graph and the
canonical line.
"""

from collections.abc import Iterable, Iterator

from kvc.compiler_passes.graph_rules import BASIC_RULES, GRAPH_RULES, Checked
from kvc.compiler_passes.infra import Miss, line_of
from kvc.compiler_passes.program_rules import PROGRAM_RULES
from kvc.compiler_passes.stages import Stage
from kvc.diagnostics import Diagnostic, KvcError
from kvc.graphs.graph import Graph
from kvc.graphs.program import Program


def verify(program: Program, stage: Stage, *, after: str, before: Program | None = None) -> None:
    """Raise KvcError with every violation (KVC320 to KVC333).

    ``after`` names the pass in messages; ``before`` is the program that it was given: accesses of pools must keep their
    order, and graphs that are still the same objects at the same stage need no second look.
    """
    previous = before.named_graphs() if before else {}
    found: list[Diagnostic] = []
    for name, graph in program.named_graphs().items():
        found += _violations(after, name, _checked(name, graph, stage, previous.get(name)))
    if not found:
        found += (
            Diagnostic(code, f"after {after}, {where}: {problem}")
            for code, rule in PROGRAM_RULES
            for where, problem in rule(program, before)
        )
    if found:
        raise KvcError(found)


def verify_graph(graph: Graph, stage: Stage, *, phase: str = "generation", after: str = "parsing") -> None:
    """`verify` for one layer graph by itself."""
    found = list(_violations(after, graph.name, Checked(graph, stage, phase, is_prologue=False)))
    if found:
        raise KvcError(found)


def _checked(name: str, graph: Graph, stage: Stage, before: Graph | None) -> Checked:
    owner, _, phase = name.rpartition(".")
    return Checked(graph, stage, phase, owner == "prologue", before, owner)


def _violations(after: str, name: str, checked: Checked) -> Iterator[Diagnostic]:
    """The violations of the basic rules, or if there are none, of the others."""
    basic = list(_apply(BASIC_RULES, after, name, checked))
    yield from basic or _apply(GRAPH_RULES, after, name, checked)


def _apply(rules: Iterable, after: str, name: str, checked: Checked) -> Iterator[Diagnostic]:  # type: ignore[type-arg]
    for code, rule in rules:
        for node, problem in rule(checked):
            place = Miss(name, line_of(checked.graph, node), problem)
            yield Diagnostic(code, f"after {after}, {name}: {problem}", place.source, help=f"at {place.at}")
