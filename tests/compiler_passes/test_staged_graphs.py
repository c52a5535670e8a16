"""The verifier on graphs of staged layers."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch.fx
from tiny_engine import lowered

from kvc.compiler_passes.manager import program_text, run_passes
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify
from kvc.diagnostics import KvcError
from kvc.graphs.graph import Graph, is_op
from kvc.graphs.program import Program
from kvc.graphs.text import parse_graph, print_graph

Change = Callable[[Graph], None]


@cache
def compiled() -> Program:
    """`tiny-staged` after all passes; it must not be changed."""
    return run_passes(lowered("tiny-staged")[0])[0]


def violations(program: Program) -> list[tuple[str, str]]:
    with pytest.raises(KvcError) as caught:
        verify(program, Stage.CAPTURED, after="fuse_x")
    return [(finding.code, finding.message) for finding in caught.value.diagnostics]


def changed(name: str, phase: str, change: Change) -> Program:
    """The program with a copy of one graph that is changed."""
    graph = compiled().graphs[name, phase].copy()  # type: ignore[index]
    change(graph)
    return replace(compiled(), graphs={**compiled().graphs, (name, phase): graph})


def call_of(graph: Graph) -> torch.fx.Node:
    (call,) = graph.calls
    return call


def test_what_was_compiled_is_verified_and_reads_back() -> None:
    verify(compiled(), Stage.CAPTURED, after="all")
    for graph in compiled().named_graphs().values():
        assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    assert "return \n" not in program_text(compiled())


def test_every_part_has_a_graph_of_each_phase() -> None:
    graphs = {key: graph for key, graph in compiled().graphs.items() if key != ("mla1.write_back", "context")}
    assert violations(replace(compiled(), graphs=graphs, capture=None)) == [
        ("KVC330", "after fuse_x, mla1.write_back.context: there is no graph for this phase")
    ]


def swapped(*places: int) -> Change:
    def change(graph: Graph) -> None:
        call, (one, other) = call_of(graph), places
        args = list(call.args)
        args[one], args[other] = args[other], args[one]
        call.args = tuple(args)

    return change


def set_attribute(name: str, value: object) -> Change:
    def change(graph: Graph) -> None:
        call = call_of(graph)
        call.kwargs = {**call.kwargs, name: value}

    return change


@pytest.mark.parametrize(
    ("name", "phase", "change", "code", "words"),
    [
        ("gqa0.stage", "generation", swapped(2, 4), "KVC333", "uses the page table of pool"),
        ("gqa0.write_back", "context", swapped(5, 6), "KVC333", "uses the page table of pool"),
        ("mla1.stage", "context", set_attribute("last", 25), "KVC335", "reads first 4, last 25"),
        ("gqa0.stage", "context", set_attribute("unit", "page"), "KVC335", "by the page"),
        ("gqa0.stage", "generation", swapped(5, 6), "KVC335", "retained rows from another length"),
    ],
)
def test_what_a_part_gets_wrong(name: str, phase: str, change: Change, code: str, words: str) -> None:
    found = violations(changed(name, phase, change))
    assert [row for row in found if row[0] == code and f"{name}.{phase}" in row[1] and words in row[1]]


def test_parts_agree_on_the_scales_of_a_row() -> None:
    """What `write_back` encodes under one operand, `stage` decodes under it."""

    def change(graph: Graph) -> None:
        call = call_of(graph)
        args = list(call.args)
        args[7] = list(reversed(args[7]))  # type: ignore[arg-type]
        call.args = tuple(args)

    found = violations(changed("gqa0.stage", "generation", change))
    assert [code for code, _ in found] == ["KVC328"]
    assert "under scale.v, scale.k; it is stored under scale.k, scale.v in" in found[0][1]


def test_a_part_writes_what_it_is_for() -> None:
    """A graph that stages writes no pool; one that writes back no staging."""
    graphs = compiled().graphs
    for one, other, wrong in (("stage", "write_back", "pool.history"), ("write_back", "stage", "staging.k")):
        mixed = {**graphs, (f"gqa0.{one}", "context"): graphs[f"gqa0.{other}", "context"].copy(f"gqa0.{one}.context")}
        messages = [message for code, message in violations(replace(compiled(), graphs=mixed)) if code == "KVC326"]
        assert any(f"writes {wrong}, which is not a {'staging' if one == 'stage' else 'pool'}" in m for m in messages)


def test_a_whole_layer_may_not_read_before_it_stores() -> None:
    """The order that `stage` is free of, since the runtime asks for `write_back` first, binds a layer's one graph."""
    program = compiled()
    stage = program.graphs["gqa0.stage", "generation"].copy("gqa0.generation")
    assert is_op(call_of(stage), "kvc.stage_history")
    signatures = {**program.signatures, "gqa0": {**program.signatures["gqa0"], "kernel": "kvc"}}
    graphs = {**program.graphs, ("gqa0", "generation"): stage}
    found = violations(replace(program, graphs=graphs, signatures=signatures, capture=None))
    assert ("KVC327", "after fuse_x, gqa0.generation: reads pool.history before this step's rows are stored") in found
