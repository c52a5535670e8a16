"""Moves what depends on the step alone out of the layer graphs into one prologue a phase, computed once a step.

Knows no particular op: whatever has only step sections (or values made of them) as operands moves. Equal values of
several signatures become one output of the prologue, which layers take as ``prologue.<name>``.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch.fx

from kvc.compiler_passes.canonicalize import remove_unused_placeholders, reorder, structural_key
from kvc.compiler_passes.effects import is_call, is_mutating, producer, remove_dead
from kvc.compiler_passes.infra import ProgramPass, Result
from kvc.compiler_passes.stages import PROLOGUE_ROLES, Stage
from kvc.graphs.builder import GraphBuilder
from kvc.graphs.graph import Graph, op_name, result_values
from kvc.graphs.program import PHASES, Phase, Program

Node = torch.fx.Node

# What the results of an op are called in a prologue; other ops give their own name, numbered if there are several.
RESULT_NAMES: dict[str, tuple[str, ...]] = {
    "kvc.copy_page_tables": ("page_tables",),
    "kvc.correct_lengths": ("committed",),
    "kvc.step_positions": ("positions", "lengths"),
    "kvc.write_rows": ("rows",),
}


def step_values(graph: Graph) -> list[Node]:
    """The nodes that depend on step sections and feedback alone, in program order, these among them."""
    found: dict[Node, None] = {}
    for node in graph.fx.nodes:
        if _is_step_value(node, found):
            found[node] = None
    return list(found)


def _is_step_value(node: Node, found: Collection[Node]) -> bool:
    if node.op == "placeholder":
        return node.meta["role"] in PROLOGUE_ROLES
    operands = node.all_input_nodes
    pure = node.op == "call_function" and not is_mutating(node)
    return pure and bool(operands) and all(value in found for value in operands)


class ResultNames:
    """Names of prologue values: readable, unique, the same whenever the prologue is made of the same layers."""

    def __init__(self) -> None:
        self._parts: dict[Node, tuple[str, str]] = {}  # stem, suffix
        self._taken: dict[str, Node] = {}

    def name(self, node: Node) -> str:
        """The name of ``node``; a number is added where another value has the name already."""
        stem, suffix = self.parts(node)
        name, count = stem + suffix, 1
        while self._taken.setdefault(name, node) is not node:
            count += 1
            name = f"{stem}{suffix}_{count}"
        return name

    def parts(self, node: Node) -> tuple[str, str]:
        """What the value is, and of which pool: a selected entry is numbered, and so is what is made of it."""
        if node not in self._parts:
            self._parts[node] = self._find_parts(node)
        return self._parts[node]

    def _find_parts(self, node: Node) -> tuple[str, str]:
        call, index = producer(node)
        if call.op == "placeholder":
            return str(call.target), ""
        operand_parts = [self.parts(operand) for operand in call.all_input_nodes]
        if op_name(call.target) == "aten.select.int":
            return operand_parts[0][0].removesuffix("s"), f"_{call.kwargs['index']}"
        suffix = next((suffix for _, suffix in operand_parts if suffix), "")
        return _result_name(call, index), suffix


def _result_name(call: Node, index: int) -> str:
    name = op_name(call.target)
    base = name.split(".")[1]
    several = len(result_values(call)) > 1
    return RESULT_NAMES[name][index] if name in RESULT_NAMES else f"{base}_{index}" if several else base


class PrologueBuilder:
    """Collects the step values of a phase's layer graphs in one graph, equal ones once."""

    def __init__(self, phase: Phase, graphs: list[Graph]) -> None:
        self.builder = GraphBuilder(f"prologue.{phase}")
        self.outputs: dict[str, Node] = {}
        self._names = ResultNames()
        self._made: dict[Any, tuple[Node, ...]] = {}
        self._sections: dict[str, Node] = {}
        for graph in graphs:
            self._declare_sections(graph)

    def _declare_sections(self, graph: Graph) -> None:
        for node in graph.placeholders:
            name, value = str(node.target), node.meta["val"]
            if node.meta["role"] in PROLOGUE_ROLES and name not in self._sections:
                dims = tuple(map(graph.symbols.size_text, value.shape))
                self._sections[name] = self.builder.placeholder(node.meta["role"], name, value.dtype, dims)

    def include(self, values: list[Node]) -> dict[Node, Node]:
        """Compute the step values of a layer graph here; layer node -> prologue node."""
        moved: dict[Node, Node] = {}
        for node in values:
            if node.op == "placeholder":
                moved[node] = self._sections[str(node.target)]
            elif is_call(node):
                made = self._call(node, moved)
                if len(result_values(node)) == 1:
                    moved[node] = made[0]
            else:
                call, index = producer(node)
                moved[node] = self._call(call, moved)[index]
        return moved

    def _call(self, node: Node, moved: Mapping[Node, Node]) -> tuple[Node, ...]:
        args = torch.fx.node.map_arg(node.args, moved.__getitem__)
        key = (node.target, structural_key(args), structural_key(node.kwargs))
        if key not in self._made:
            made = self.builder.call(op_name(node.target), *args, source=node.meta["source"], **node.kwargs)
            self._made[key] = made if isinstance(made, tuple) else (made,)
        return self._made[key]

    def export(self, value: Node) -> str:
        """Make a value an output; returns its name."""
        name = self._names.name(value)
        self.outputs[name] = value
        return name

    def finish(self) -> Graph:
        """The prologue in canonical order, without what no layer takes."""
        graph = self.builder.finish(self.outputs)
        remove_dead(graph)
        remove_unused_placeholders(graph)
        reorder(graph)
        return graph


def hoist(graph: Graph, prologue: PrologueBuilder) -> Graph:
    """The layer graph with its step values taken from the prologue."""
    work = graph.copy()
    values = step_values(work)
    moved = prologue.include(values)
    inside = set(values)
    for node in values:
        taken = any(user not in inside for user in node.users)
        if taken and node in moved:
            name = prologue.export(moved[node])
            node.replace_all_uses_with(_placeholder(work, node, name), delete_user_cb=lambda user: user not in inside)
    remove_dead(work)
    remove_unused_placeholders(work)
    return work


def _placeholder(work: Graph, node: Node, name: str) -> Node:
    """`prologue.<name>` after the placeholders that are there; one for equal values."""
    declared = [p for p in work.placeholders if p.meta["role"] == "prologue" and p.target == name]
    if declared:
        return declared[0]
    with work.fx.inserting_after(work.placeholders[-1]):
        made = work.fx.placeholder(name)
    made.meta.update(val=node.meta["val"], role="prologue", source="")
    return made


class HoistStepInvariants(ProgramPass):
    """Makes the prologues; ``fired`` counts the calls that left the layer graphs."""

    name = "hoist_step_invariants"
    requires = Stage.LOWERED
    ensures = Stage.HOISTED

    def run(self, program: Program) -> Result:
        """Hoist the step values of every phase that has any."""
        graphs, prologues, fired_in = dict(program.graphs), dict(program.prologues), {}
        for phase in PHASES:
            keys = [key for key, graph in program.graphs.items() if key[1] == phase and step_values(graph)]
            prologue = PrologueBuilder(phase, [program.graphs[key] for key in keys])
            for key in keys:
                graphs[key] = hoist(program.graphs[key], prologue)
                fired_in[f"{key[0]}.{phase}"] = len(program.graphs[key].calls) - len(graphs[key].calls)
            if keys:
                prologues[phase] = prologue.finish()
        return Result(replace(program, graphs=graphs, prologues=prologues), sum(fired_in.values()), fired_in=fired_in)
