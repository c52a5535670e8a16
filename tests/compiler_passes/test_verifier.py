"""One broken thing per rule: the code, the pass, the graph and the canonical line must be named."""

from collections.abc import Callable

import pytest
from pass_texts import LAYER, graph_text
from verifying import GOOD, check, found, node_of

from kvc.compiler_passes.graph_rules import GRAPH_RULES, Checked, only_pools_are_written
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify_graph
from kvc.graphs.graph import Graph, is_op
from kvc.graphs.text import parse_graph


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


READ_OTHERWISE = {
    "encoding": ("bf16", "reads pool.history as bf16; it is stored as fp8"),
    "tokens_per_page": (8, "reads pool.history in pages of 8 tokens; it is stored in pages of 4"),
}


@pytest.mark.parametrize("attribute", READ_OTHERWISE)
def test_read_otherwise_than_stored(attribute: str) -> None:
    value, problem = READ_OTHERWISE[attribute]
    graph = parse_graph(GOOD)
    node = node_of(graph, "kvc.gqa_decode")
    node.kwargs = node.kwargs | {attribute: value}
    messages = {one.code: one.message for one in found(verify_graph, graph, Stage.HOISTED)}
    assert messages["KVC328"] == f"after parsing, gqa0.generation: {problem}"


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
