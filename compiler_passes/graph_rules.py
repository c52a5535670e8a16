"""What must hold in every graph of a program. A rule yields (nearest node, what is wrong)."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch.fx

from kvc.compiler_passes.code_rules import codes_read_otherwise, inputs_taken_otherwise
from kvc.compiler_passes.effects import access_history, accesses, argument, mutated, operands, producer
from kvc.compiler_passes.scale_rules import scale_conflicts
from kvc.compiler_passes.select_kernels import is_kvc, kernel_of
from kvc.compiler_passes.stages import (
    ARGUMENT_ROLES,
    LAYER_OPS,
    LAYER_ROLES,
    PROLOGUE_OPS,
    PROLOGUE_ROLES,
    WRITTEN_ROLES,
    Stage,
)
from kvc.diagnostics import KvcError
from kvc.graphs.builder import propagate
from kvc.graphs.graph import Graph, op_name, qualified_name
from kvc.graphs.program import part_of

Node = torch.fx.Node
Found = Iterator[tuple[Node, str]]


@dataclass(frozen=True)
class Checked:
    """A graph and what it is checked against.

    ``before`` is the graph that the last pass was given, if it had one; ``owner`` its name without the phase.
    """

    graph: Graph
    stage: Stage
    phase: str
    is_prologue: bool
    before: Graph | None = None
    owner: str = ""


def defined_before_use(checked: Checked) -> Found:
    """Every value has one definition, above its uses."""
    seen: set[Node] = set()
    for node in checked.graph.fx.nodes:
        for used in node.all_input_nodes:
            if used not in seen:
                yield node, f"uses {used.name} before it is defined"
        seen.add(node)


def known_placeholders(checked: Checked) -> Found:
    """Placeholders have a role that is legal here, and a name of their own."""
    legal = PROLOGUE_ROLES if checked.is_prologue else LAYER_ROLES[checked.stage]
    seen: set[str] = set()
    for node in checked.graph.placeholders:
        name = qualified_name(node)
        if node.meta["role"] not in legal:
            yield node, f"a placeholder of role {node.meta['role']} is not legal at stage {checked.stage.name}"
        if name in seen:
            yield node, f"{name} is declared twice"
        seen.add(name)


def legal_ops(checked: Checked) -> Found:
    """Ops are those of the stage."""
    legal = PROLOGUE_OPS if checked.is_prologue else LAYER_OPS[checked.stage]
    for node in checked.graph.calls:
        if op_name(node.target) not in legal:
            where = "a prologue" if checked.is_prologue else "a layer graph"
            yield node, f"{op_name(node.target)} is not legal in {where} at stage {checked.stage.name}"


def conventions(checked: Checked) -> Found:
    """Tensors are positional arguments, everything else is a keyword."""
    for node in checked.graph.calls:
        if any(True for _ in operands(list(node.kwargs.values()))):
            yield node, "a tensor is given by keyword"
        if not all(_is_tensor_argument(value) for value in node.args):
            yield node, "an attribute is given by position"


def _is_tensor_argument(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_tensor_argument, value))
    return value is None or isinstance(value, Node)


def inferred_types(checked: Checked) -> Found:
    """The op takes its arguments, and the recorded type of every result is the one it infers."""
    graph = checked.graph
    for node in graph.calls:
        try:
            inferred = propagate(graph, op_name(node.target), node.target, node.args, node.kwargs)
        except KvcError as error:
            yield node, error.diagnostics[0].message
            continue
        if _types(graph, inferred) != _types(graph, node.meta["val"]):
            yield node, f"the result is recorded as {_types(graph, node.meta['val'])} but is {_types(graph, inferred)}"
    for node in graph.fx.nodes:
        if node.target is operator.getitem and _types(graph, node.meta["val"]) != _item_type(graph, node):
            yield node, f"the result is recorded as {_types(graph, node.meta['val'])}, not as its op has it"


def _item_type(graph: Graph, node: Node) -> str:
    call, index = producer(node)
    return _types(graph, call.meta["val"][index])


def _types(graph: Graph, value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(_types(graph, item) for item in value)})"
    return "nothing" if value is None else graph.symbols.type_text(value)


def operand_roles(checked: Checked) -> Found:
    """Pools, tables and scales are placeholders of that role: layers bind them, nothing computes them."""
    for node in checked.graph.calls:
        for name, role in ARGUMENT_ROLES.items():
            for value in operands(argument(node, name)):
                if value.meta.get("role") != role:
                    yield node, f"argument {name} must be a {role} placeholder, not {_describe(value)}"


def _describe(value: Node) -> str:
    call, _ = producer(value)
    return qualified_name(call) if call.op == "placeholder" else f"a result of {op_name(call.target)}"


def only_pools_are_written(checked: Checked) -> Found:
    """Everything but a pool write, or the write of staging, is functional."""
    role = WRITTEN_ROLES.get(part_of(checked.owner), "pool")
    for node in checked.graph.calls:
        for value in mutated(node):
            if value.meta.get("role") != role:
                yield node, f"writes {_describe(value)}, which is not a {role}"


def pool_order(checked: Checked) -> Found:
    """In generation a step's rows are stored before they are read; a pass keeps the order of accesses it found.

    Staging reads what `write_back` has stored before: the runtime refuses to stage first.
    """
    if checked.phase == "generation" and part_of(checked.owner) != "stage":
        yield from _reads_after_writes(checked.graph)
    if checked.before is not None:
        yield from _same_order(checked.graph, access_history(checked.before))


def _reads_after_writes(graph: Graph) -> Found:
    written, read = set(), set()
    for node in graph.calls:
        for pool, kind in accesses(node):
            if kind == "write":
                written.add(pool)
                if pool in read:
                    yield node, f"writes {qualified_name(pool)} after it was read"
            elif pool not in written:
                yield node, f"reads {qualified_name(pool)} before this step's rows are stored"
            else:
                read.add(pool)


def _same_order(graph: Graph, before: dict[str, str]) -> Found:
    """A read that nobody uses may go; a write never does."""
    history = access_history(graph)
    for pool in before | history:
        was, now = before.get(pool, ""), history.get(pool, "")
        if not _is_subsequence(now, was) or now.count("W") != was.count("W"):
            order = f"were {was or 'none'} and are {now or 'none'}"
            yield _last_access(graph, pool), f"the accesses of pool.{pool} {order} (W: write, R: read)"


def _is_subsequence(short: str, long: str) -> bool:
    rest = iter(long)
    return all(letter in rest for letter in short)


def _last_access(graph: Graph, pool: str) -> Node:
    """The last call that uses a pool, the output where none does."""
    users = (call for call in graph.calls if any(used.target == pool for used, _ in accesses(call)))
    return [graph.fx.output_node(), *users][-1]


def kernels_chosen(checked: Checked) -> Found:
    """From `select_kernels` on, every kvc call names a kernel of its op."""
    for node in checked.graph.calls if checked.stage >= Stage.SELECTED else ():
        if is_kvc(node) and kernel_of(node) is None:
            yield node, f"kernel {node.meta.get('kernel')!s} is no kernel of {op_name(node.target)}"


def accepted_types(checked: Checked) -> Found:
    """Inputs that may hold codes are taken as such by every call, with the same results."""
    return inputs_taken_otherwise(checked.graph)


def codes_under_one_scale(checked: Checked) -> Found:
    """Codes that attention takes are made under the scale operand that it reads them under."""
    return codes_read_otherwise(checked.graph)


def one_scale_source(checked: Checked) -> Found:
    """What a pool's rows are encoded with is what they are read with."""
    return scale_conflicts(checked.graph)


# The first three must hold before the others can look.
BASIC_RULES: tuple[tuple[str, Callable[[Checked], Found]], ...] = (
    ("KVC320", defined_before_use),
    ("KVC321", known_placeholders),
    ("KVC322", legal_ops),
    ("KVC323", conventions),
)
GRAPH_RULES: tuple[tuple[str, Callable[[Checked], Found]], ...] = (
    ("KVC324", inferred_types),
    ("KVC324", accepted_types),
    ("KVC325", operand_roles),
    ("KVC326", only_pools_are_written),
    ("KVC327", pool_order),
    ("KVC328", one_scale_source),
    ("KVC328", codes_under_one_scale),
    ("KVC331", kernels_chosen),
)
