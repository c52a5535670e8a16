"""The workspace against a brute-force look at what is alive, and the sizes it is made of."""

import itertools
from dataclasses import replace

import pytest
import torch
from latent_programs import latent_program
from pass_texts import found, graph_text, program_of
from tiny_engine import interpret, lowered

from kvc.compiler_passes.liveness import ALIGNMENT, limits
from kvc.compiler_passes.manager import run_passes
from kvc.compiler_passes.plan_workspace import PlanWorkspace
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify
from kvc.graphs.graph import Graph, qualified_name
from kvc.graphs.program import Program, program_from_json
from kvc.graphs.text import parse_graph, print_graph

PROGRAMS = {
    "tiny-mixed": lambda: lowered("tiny-mixed")[0],
    "tiny-mla-bf16": lambda: lowered("tiny-mla-bf16")[0],
    "fp8 context": lambda: latent_program()[0],
    "fp8 context, V transposed": lambda: latent_program(arch="sm_90")[0],
}


@pytest.fixture(params=PROGRAMS, scope="module")
def compiled(request: pytest.FixtureRequest) -> Program:
    return run_passes(PROGRAMS[request.param]())[0]


def alive_after(graph: Graph, values: dict[str, torch.Tensor], index: int) -> set[str]:
    """Names of values made by the first calls that a later call still takes; a view keeps what it shows alive."""
    lines = [line.strip() for line in print_graph(graph, comments=False).splitlines()[1:]]
    made = {name for line in lines[: index + 1] for name in names_left(line)}
    needed = {name for line in lines[index + 1 :] for name in names_right(line)}
    return {name for name in made if any(same_memory(values, name, other) for other in needed & made)}


def names_left(line: str) -> list[str]:
    return (
        [part.split(":")[0] for part in line.split(" = ")[0].split(", ") if part.startswith("%")]
        if " = " in line
        else []
    )


def names_right(line: str) -> list[str]:
    right = line.split(" = ")[-1]
    return [word.strip("(),[]").rpartition("=")[2] for word in right.split() if "%" in word for word in word.split("(")]


def same_memory(values: dict[str, torch.Tensor], one: str, other: str) -> bool:
    return values[one].untyped_storage()._cdata == values[other].untyped_storage()._cdata


def test_no_two_values_that_live_at_once_share_bytes(compiled: Program) -> None:
    """Every pair of values at every call, found from the text alone."""
    placed = {(region.graph, region.value): region for region in compiled.workspace.regions}
    for name, graph in compiled.named_graphs().items():
        values = evaluated(graph, compiled)
        lines = print_graph(graph, comments=False).splitlines()[1:]
        for index in range(len(lines)):
            here = {*alive_after(graph, values, index), *names_left(lines[index].strip())}
            here |= {word for word in names_right(lines[index].strip()) if word in values}
            here |= {f"scratch of {word}" for word in names_left(lines[index].strip())}
            regions = sorted((placed[name, v] for v in here if (name, v) in placed), key=lambda r: r.offset)
            for left, right in itertools.pairwise(regions):
                assert left.end <= right.offset, (name, lines[index], left, right)


def evaluated(graph: Graph, program: Program) -> dict[str, torch.Tensor]:
    """Every value by its number in the text, on the meta device at the limits of the program."""
    sizes = limits(program)
    given = {
        qualified_name(node): torch.empty(
            [graph.symbols.number(size, sizes) for size in node.meta["val"].shape],
            dtype=node.meta["val"].dtype,
            device="meta",
        )
        for node in graph.placeholders
    }
    text = print_graph(graph, comments=False)
    everything = [name for line in text.splitlines()[1:] for name in names_left(line.strip())]
    outputs = ", ".join(f"v{name[1:]}={name}" for name in everything)
    again = parse_graph(f"{text.rpartition('  return')[0]}  return {outputs}\n")
    return {f"%{name[1:]}": value for name, value in interpret(again, given).items()}


def test_every_intermediate_has_its_bytes(compiled: Program) -> None:
    """What is neither given, nor an output, nor a view of either, is in the workspace, as large as its storage."""
    placed = {(region.graph, region.value): region.bytes for region in compiled.workspace.regions}
    for name, graph in compiled.named_graphs().items():
        values = evaluated(graph, compiled)
        lines = [line.strip() for line in print_graph(graph, comments=False).splitlines()[1:]]
        outside = {*names_right(lines[-1]), *(n for line in lines if "(" not in line for n in names_left(line))}
        expected = {
            (name, value): tensor.untyped_storage().nbytes()
            for value, tensor in values.items()
            if not any(same_memory(values, value, other) for other in outside if other in values)
        }
        found = {key: size for key, size in placed.items() if key[0] == name and not key[1].startswith("scratch")}
        views = {key for key, size in expected.items() if key not in found and size}
        assert all(is_view_of_placed(values, value, found) for _, value in views)
        assert all(found[key] == expected[key] for key in found)


def is_view_of_placed(values: dict[str, torch.Tensor], value: str, found: dict[tuple[str, str], int]) -> bool:
    return any(same_memory(values, value, other) for _, other in found)


def test_total_is_the_largest_graph(compiled: Program) -> None:
    ends: dict[str, int] = {}
    for region in compiled.workspace.regions:
        ends[region.graph] = max(ends.get(region.graph, 0), region.end)
        assert region.offset % ALIGNMENT == 0
    assert compiled.workspace.bytes == max(ends.values())
    assert len(ends) > 2  # more than one graph uses it


def test_scratch_is_one_expanded_chunk() -> None:
    """K of 16 + 16 values and V of 16, 3 heads, 64 tokens: two bytes a value, one as codes."""
    sizes = {}
    for context in ("act", "fp8"):
        program = run_passes(latent_program(context=context)[0])[0]
        (sizes[context],) = (r.bytes for r in program.workspace.regions if r.value.startswith("scratch"))
    assert sizes == {"act": 64 * 3 * 48 * 2, "fp8": 64 * 3 * 48}


def test_values_reuse_the_place_of_dead_ones() -> None:
    """A chain of five equal values needs two places, not five."""
    body = "\n".join(f"%{i + 1}: f32[T, 4] = aten.neg(%{i})" for i in range(5))
    text = graph_text(f"{body}\n%6: f32[T, 4] = aten.neg(%5)\nreturn out=%6", "  %0: f32[T, 4] = input.x")
    program = replace(program_of(text), max_tokens=64)
    result = PlanWorkspace().run(program)
    assert result.fired == 5 and result.program.workspace.bytes == 2 * 64 * 4 * 4
    assert {region.offset for region in result.program.workspace.regions} == {0, 1024}


def test_it_survives_the_manifest(compiled: Program) -> None:
    read = program_from_json(compiled.to_json(), compiled.named_graphs())
    assert read.workspace == compiled.workspace and read.max_tokens == compiled.max_tokens


def test_the_verifier_sees_values_that_meet() -> None:
    program = run_passes(latent_program()[0])[0]
    squeezed = tuple(replace(region, offset=0) for region in program.workspace.regions)
    broken = replace(program, workspace=replace(program.workspace, regions=squeezed))
    messages = [one for one in found(verify, broken, Stage.CAPTURED, after="fuse_x") if one.code == "KVC334"]
    assert any("live at the same time and share bytes of the workspace" in one.message for one in messages)
    broken = replace(program, workspace=replace(program.workspace, bytes=program.workspace.bytes - 1))
    (one, *_) = found(verify, broken, Stage.CAPTURED, after="fuse_x")
    assert one.code == "KVC334" and "has no place of" in one.message
