"""KVC328: what is written to a pool is what is read, in one graph and in all phases of a signature."""

from dataclasses import replace

import pytest
import torch
from pass_texts import GOOD, found, node_of
from tiny_engine import compiled, lowered

from kvc.compiler_passes import encoded_rows, scale_rules
from kvc.compiler_passes.scale_rules import phase_conflicts
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify, verify_graph
from kvc.encodings import ENCODINGS
from kvc.graphs.graph import Graph
from kvc.graphs.text import parse_graph

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


def scale_placeholders(graph: Graph) -> dict[str, torch.fx.Node]:
    return {str(node.target): node for node in graph.placeholders if node.meta["role"] == "scale"}


@pytest.mark.parametrize("phase", ["context", "generation"])
@pytest.mark.parametrize("stage", [Stage.LOWERED, Stage.CAPTURED])
def test_a_phase_that_swaps_scales(phase: str, stage: Stage) -> None:
    """Each graph is right by itself; the next phase would misread the rows."""
    program = compiled() if stage else lowered("tiny-mixed")[0]
    graph = program.graphs["gqa0", phase].copy()
    scales = scale_placeholders(graph)
    other = {scales["k"]: scales["v"], scales["v"]: scales["k"]}
    for node in graph.calls:
        node.args = torch.fx.node.map_arg(node.args, lambda value: other.get(value, value))
    graphs = dict(program.graphs) | {("gqa0", phase): graph}
    (one,) = found(verify, replace(program, graphs=graphs), stage, after="fuse_x")
    order = ("scale.v, scale.k", "scale.k, scale.v")
    now, first = order if phase == "generation" else order[::-1]
    problem = f"uses pool.history under {now}; it is stored under {first} in context"
    assert (one.code, one.message) == ("KVC328", f"after fuse_x, gqa0.generation: {problem}")


STORED_OTHERWISE = {
    "encoding": ("bf16", "uses pool.history as bf16; it is stored as fp8 in context"),
    "tokens_per_page": (8, "uses pool.history in pages of 8 tokens; it is stored in pages of {} in context"),
}


@pytest.mark.parametrize("attribute", STORED_OTHERWISE)
def test_a_phase_that_stores_otherwise(attribute: str) -> None:
    """By itself: the types of such a graph are wrong too."""
    value, problem = STORED_OTHERWISE[attribute]
    program = compiled()
    graph = program.graphs["gqa0", "generation"].copy()
    was = {node.kwargs[attribute] for node in graph.calls if attribute in node.kwargs}
    for node in graph.calls:
        node.kwargs = {**node.kwargs, attribute: value} if attribute in node.kwargs else node.kwargs
    graphs = dict(program.graphs) | {("gqa0", "generation"): graph}
    ((where, said),) = phase_conflicts(replace(program, graphs=graphs))
    assert (where, said) == ("gqa0.generation", problem.format(*was))


def test_encodings_that_share_a_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes of a codec may be of any encoding that has it, but all reads mean the same one."""
    shared = {name: replace(ENCODINGS["fp8"], name=name) for name in ("fp8_plain", "fp8_other")}
    monkeypatch.setattr(encoded_rows, "ENCODINGS", shared | {"bf16": ENCODINGS["bf16"]})
    graph = parse_graph(GOOD)
    decode = node_of(graph, "kvc.gqa_decode")
    decode.kwargs = decode.kwargs | {"encoding": "fp8_plain"}
    assert list(scale_rules.scale_conflicts(graph)) == []
    decode.kwargs = decode.kwargs | {"encoding": "bf16"}
    ((_, problem),) = scale_rules.scale_conflicts(graph)
    assert problem == "reads pool.history as bf16; it is stored as fp8_other or fp8_plain"
    with graph.fx.inserting_after(decode):
        again = graph.fx.node_copy(decode, lambda node: node)
    decode.kwargs, again.kwargs = (decode.kwargs | {"encoding": name} for name in shared)
    ((node, problem),) = scale_rules.scale_conflicts(graph)
    assert (node, problem) == (again, "reads pool.history as fp8_other; it is stored as fp8_plain")
