"""One broken thing per rule: the code, the pass, the graph and the canonical line must be named."""

import copy
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pass_texts import GOOD, LAYER, found, graph_text, node_of
from tiny_engine import compiled, lowered

from kvc.compiler_passes.graph_rules import BASIC_RULES, GRAPH_RULES, Checked, only_pools_are_written
from kvc.compiler_passes.program_rules import PROGRAM_RULES
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify, verify_graph
from kvc.diagnostic_codes import CODES
from kvc.diagnostics import Diagnostic
from kvc.graphs.graph import Graph, is_op
from kvc.graphs.program import Program
from kvc.graphs.text import parse_graph


def check(diagnostics: list[Diagnostic], code: str, problem: str, at: str) -> None:
    first = diagnostics[0]
    assert (first.code, first.message) == (code, f"after fuse_x, gqa0.generation: {problem}")
    assert at in first.help


def test_good_graph_is_good() -> None:
    verify_graph(parse_graph(GOOD), Stage.HOISTED)


# Replacements in the good text, the code, what is said, and what the cited line holds.
TEXTS = {
    "step value in a hoisted layer": (
        {"= prologue.lengths": "= step.lengths"},
        "KVC321",
        "a placeholder of role step is not legal at stage HOISTED",
        "step.lengths",
    ),
    "placeholder declared twice": (
        {"= prologue.rows_0": "= prologue.positions"},
        "KVC321",
        "prologue.positions is declared twice",
        "prologue.positions",
    ),
    "op of the prologue in a layer": (
        {"return": "%17: i32[T] = kvc.write_rows(%9, %7, %10) {tokens_per_page=4}\n  return"},
        "KVC322",
        "kvc.write_rows is not legal in a layer graph at stage HOISTED",
        "kvc.write_rows",
    ),
    "op nobody knows": (
        {"return out=%15": "%17: bf16[T, 4, 8] = aten.neg(%15)\n  return out=%17"},
        "KVC322",
        "aten.neg is not legal in a layer graph at stage HOISTED",
        "aten.neg",
    ),
    "scale that is no scale": (
        {"= scale.k": "= weight.k"},
        "KVC325",
        "argument scale must be a scale placeholder, not weight.k",
        "kvc.quantize_fp8",
    ),
    "table that is computed by nobody": (
        {"= table.rope": "= input.rope"},
        "KVC325",
        "argument table must be a table placeholder, not input.rope",
        "kvc.rope",
    ),
    "pool that is an input": (
        {"= pool.history": "= input.history"},
        "KVC325",
        "argument pool must be a pool placeholder, not input.history",
        "kvc.store_rows",
    ),
    "K read under the scale of V": (
        {"%8, %4, %5)": "%8, %5, %4)"},
        "KVC328",
        "reads pool.history under scale.v, scale.k; it is stored under scale.k, scale.v",
        "kvc.gqa_decode",
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_broken_text(case: str) -> None:
    changes, code, problem, at = TEXTS[case]
    text = GOOD
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    check(found(verify_graph, parse_graph(text), Stage.HOISTED, after="fuse_x"), code, problem, at)


def use_before_definition(graph: Graph) -> None:
    graph.placeholders[0].prepend(node_of(graph, "kvc.rope"))


def tensor_by_keyword(graph: Graph) -> None:
    node = node_of(graph, "kvc.quantize_fp8")
    node.kwargs, node.args = {"scale": node.args[1]}, node.args[:1]


def attribute_by_position(graph: Graph) -> None:
    node = node_of(graph, "kvc.quantize_fp8")
    node.args = (*node.args, 3)


def other_recorded_type(graph: Graph) -> None:
    node = node_of(graph, "kvc.rope")
    node.meta["val"] = node.meta["val"].float()


def refused_arguments(graph: Graph) -> None:
    node = node_of(graph, "kvc.quantize_fp8")
    node.args = (node.args[0], None)


def decode_first(graph: Graph) -> None:
    graph.fx.output_node().prepend(node_of(graph, "kvc.store_rows"))


GRAPHS = {
    use_before_definition: ("KVC320", "uses q before it is defined", "kvc.rope"),
    tensor_by_keyword: ("KVC323", "a tensor is given by keyword", "kvc.quantize_fp8"),
    attribute_by_position: ("KVC323", "an attribute is given by position", "kvc.quantize_fp8"),
    other_recorded_type: (
        "KVC324",
        "the result is recorded as f32[T, 4, 8] but is bf16[T, 4, 8]",
        "kvc.rope",
    ),
    decode_first: ("KVC327", "reads pool.history before this step's rows are stored", "kvc.gqa_decode"),
}


@pytest.mark.parametrize("break_it", GRAPHS, ids=lambda one: one.__name__)
def test_broken_graph(break_it: Callable[[Graph], None]) -> None:
    graph = parse_graph(GOOD)
    break_it(graph)
    check(found(verify_graph, graph, Stage.HOISTED, after="fuse_x"), *GRAPHS[break_it])


def test_arguments_that_the_op_refuses() -> None:
    graph = parse_graph(GOOD)
    refused_arguments(graph)
    first = found(verify_graph, graph, Stage.HOISTED)[0]
    assert first.code == "KVC324"
    assert "scale: is missing" in first.message


def test_write_after_read_in_generation() -> None:
    graph = parse_graph(GOOD)
    store = node_of(graph, "kvc.store_rows")
    graph.fx.output_node().prepend(graph.fx.node_copy(store, lambda node: node))
    first = found(verify_graph, graph, Stage.HOISTED)[0]
    assert (first.code, first.message) == (
        "KVC327",
        "after parsing, gqa0.generation: writes pool.history after it was read",
    )


def test_only_pools_are_written() -> None:
    """By itself, since today's legal ops write pools only."""
    text = graph_text("%11: i32[T] = aten.neg_(%7)\nreturn out=%0", LAYER)
    (rule,) = [(code, rule) for code, rule in GRAPH_RULES if rule is only_pools_are_written]
    graph = parse_graph(text)
    ((node, problem),) = rule[1](Checked(graph, Stage.HOISTED, "generation", False))
    assert (rule[0], problem) == ("KVC326", "writes prologue.positions, which is not a pool")
    assert is_op(node, "aten.neg_")


# ---- programs ----------------------------------------------------------------------------------------------------


def broken(**changes: Any) -> list[Diagnostic]:
    return found(verify, replace(compiled(), **changes), Stage.CAPTURED, after="fuse_x")


def without_constant(program: Program, placeholder: str) -> tuple:
    first, *rest = program.bindings
    kept = {name: constant for name, constant in first.constants.items() if name != placeholder}
    return (replace(first, constants=kept), *rest)


def test_compiled_program_is_good() -> None:
    verify(compiled(), Stage.CAPTURED, after="fuse_x")


def test_context_graph_keeps_the_order_of_accesses() -> None:
    """Reading the cached rows first would be right too, but no pass may decide that."""
    program, _ = lowered("tiny-fp8")
    key = ("gqa0", "context")
    moved = program.graphs[key].copy()
    moved.fx.output_node().prepend(node_of(moved, "kvc.store_rows"))
    after = replace(program, graphs=dict(program.graphs) | {key: moved})
    (one,) = found(verify, after, Stage.LOWERED, after="fuse_x", before=program)
    problem = "the accesses of pool.history were WR and are RW (W: write, R: read)"
    assert (one.code, one.message) == ("KVC327", f"after fuse_x, gqa0.context: {problem}")
    assert one.source is not None and one.source.line == 9


def without_calls(graph: Graph, *ops: str) -> Graph:
    """The graph without its calls of some ops; what used their results uses the first input."""
    work = graph.copy()
    for node in reversed([node for node in work.calls if any(is_op(node, op) for op in ops)]):
        items = [user for user in node.users if user.target is operator.getitem]
        for value in items or [node]:
            value.replace_all_uses_with(work.placeholders[0])
        for gone in [*items, node]:
            work.fx.erase_node(gone)
    return work


LOST = {
    ("kvc.store_rows",): "were WR and are R",
    ("kvc.store_rows", "kvc.gqa_context"): "were WR and are none",
}


@pytest.mark.parametrize("ops", LOST)
def test_a_write_is_never_lost(ops: tuple[str, ...]) -> None:
    program, _ = lowered("tiny-fp8")
    key = ("gqa0", "context")
    after = replace(program, graphs=dict(program.graphs) | {key: without_calls(program.graphs[key], *ops)})
    messages = [one.message for one in found(verify, after, Stage.LOWERED, after="fuse_x", before=program)]
    problem = f"the accesses of pool.history {LOST[ops]} (W: write, R: read)"
    assert f"after fuse_x, gqa0.context: {problem}" in messages


def test_a_read_that_nobody_uses_may_go() -> None:
    program, _ = lowered("tiny-fp8")
    key = ("gqa0", "context")
    after = replace(program, graphs=dict(program.graphs) | {key: without_calls(program.graphs[key], "kvc.gqa_context")})
    verify(after, Stage.LOWERED, after="fuse_x", before=program)


def test_prologue_misses_an_output() -> None:
    prologues = {phase: graph.copy() for phase, graph in compiled().prologues.items()}
    output = prologues["generation"].fx.output_node()
    output.args = ({name: node for name, node in output.args[0].items() if name != "rows_0"},)
    one, place = broken(prologues=prologues)
    assert place.code == "KVC334"  # what is no output any more needs a place in the workspace
    assert (one.code, one.message) == (
        "KVC329",
        "after fuse_x, gqa1.generation: takes prologue.rows_0 as i32[T]; prologue.generation does not make it",
    )


def test_prologue_makes_another_type() -> None:
    prologues = {phase: graph.copy() for phase, graph in compiled().prologues.items()}
    output = prologues["generation"].fx.output_node()
    output.args = (output.args[0] | {"rows_0": output.args[0]["lengths"]},)
    assert "takes prologue.rows_0 as i32[T]; prologue.generation makes i32[B]" in broken(prologues=prologues)[0].message


def test_rows_that_are_made_of_no_page_table() -> None:
    prologues = {phase: graph.copy() for phase, graph in compiled().prologues.items()}
    output = prologues["generation"].fx.output_node()
    output.args = (output.args[0] | {"rows_0": output.args[0]["positions"]},)
    one = next(one for one in broken(prologues=prologues) if one.code == "KVC333")
    assert one.message.endswith("generation: reaches into pool.history by no page table of the step")


def test_section_that_does_not_exist() -> None:
    step = {phase: sections[1:] for phase, sections in compiled().step.items()}
    one = broken(step=step)[0]
    assert (one.code, "step.slot_tables" in one.message) == ("KVC329", True)


@pytest.mark.parametrize("stage", [Stage.LOWERED, Stage.CAPTURED])
def test_page_table_of_another_pool(stage: Stage) -> None:
    program = compiled() if stage else lowered("tiny-mixed")[0]
    bindings = tuple(replace(b, pools={"history": (1 - b.pools["history"][0], 0)}) for b in program.bindings)
    diagnostics = found(verify, replace(program, bindings=bindings), stage, after="fuse_x")
    assert {one.code for one in diagnostics} == {"KVC333"}
    problem = "gqa0.context: uses the page table of pool 1 for pool.history; it is bound to 0"
    assert diagnostics[0].message == f"after fuse_x, {problem}"


BINDINGS = {
    "a scale without a constant": (
        lambda program: {"bindings": without_constant(program, "scale.k")},
        "layer 0: scale.k has no constant",
    ),
    "a layer bound twice": (
        lambda program: {"bindings": (*program.bindings, program.bindings[1])},
        "layer 1 is bound 2 times",
    ),
    "a layer not bound": (lambda program: {"bindings": program.bindings[1:]}, "layer 0 is not bound"),
    "an unknown signature": (
        lambda program: {"bindings": (replace(program.bindings[0], signature="gqa9"), *program.bindings[1:])},
        "layer 0: there is no signature gqa9",
    ),
    "a table bound to a scale": (
        lambda program: {
            "bindings": (
                replace(program.bindings[1], constants={"table.rope": program.bindings[0].constants["scale.k"]}),
                program.bindings[0],
                *program.bindings[2:],
            )
        },
        "layer 1: table.rope is bound to a scale, not a rope_table",
    ),
}


@pytest.mark.parametrize("case", BINDINGS)
def test_incomplete_bindings(case: str) -> None:
    changes, problem = BINDINGS[case]
    one = broken(**changes(compiled()))[0]
    assert (one.code, one.message) == ("KVC330", f"after fuse_x, bindings: {problem}")


def test_missing_phase() -> None:
    graphs = {key: graph for key, graph in compiled().graphs.items() if key != ("gqa1", "context")}
    assert broken(graphs=graphs)[0].message == "after fuse_x, gqa1.context: there is no graph for this phase"


def test_call_without_a_kernel() -> None:
    graph = compiled().graphs["gqa0", "generation"].copy()
    node_of(graph, "kvc.gqa_decode").meta["kernel"] = "magic"
    (one,) = broken(graphs=dict(compiled().graphs) | {("gqa0", "generation"): graph})
    assert (one.code, one.message) == (
        "KVC331",
        "after fuse_x, gqa0.generation: kernel magic is no kernel of kvc.gqa_decode",
    )
    assert "@magic" in one.help


def test_capture_plan_with_a_gap() -> None:
    capture = copy.deepcopy(compiled().capture)
    assert capture is not None
    del capture.regions[-1].inputs["pool.history"]
    (one,) = broken(capture=capture)
    assert (one.code, one.message) == (
        "KVC332",
        "after fuse_x, gqa1.generation: pool.history is not refreshed in the capture plan",
    )


def test_capture_plan_of_other_buckets() -> None:
    assert broken(buckets=(1,))[0].code == "KVC332"


def test_every_rule_has_a_code_that_is_explained() -> None:
    assert {code for code, _ in (*BASIC_RULES, *GRAPH_RULES, *PROGRAM_RULES)} <= CODES.keys()
