"""One form for graphs that compute the same way: no dead calls, no duplicates, no unused placeholders, one order.

The order is that of a depth-first walk from the writes and the outputs, so it does not depend on the order in which
independent calls were emitted; accesses of one pool keep theirs.
"""

from collections import defaultdict
from typing import Any

import torch.fx

from kvc.compiler_passes.effects import accesses, is_call, is_mutating, remove_dead
from kvc.compiler_passes.infra import GraphPass, Rewritten
from kvc.compiler_passes.stages import Stage
from kvc.graphs.graph import Graph
from kvc.graphs.program import Program

Node = torch.fx.Node


def merge_duplicates(graph: Graph) -> int:
    """Let equal pure calls share one node; a pool read equals another only while nothing is written between them."""
    merged = 0
    seen: dict[Any, Node] = {}
    writes: dict[Node, int] = defaultdict(int)
    for node in list(graph.fx.nodes):
        if node.op != "call_function":
            continue
        used = accesses(node)
        for pool, kind in used:
            writes[pool] += kind == "write"
        if is_mutating(node):
            continue
        state = tuple(writes[pool] for pool, _ in used)
        key = (node.target, structural_key(node.args), structural_key(node.kwargs), state)
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.fx.erase_node(node)
            merged += is_call(node)
    return merged


def structural_key(value: Any) -> Any:
    """A hashable stand-in for arguments; the type keeps 1, 1.0 and True apart."""
    if isinstance(value, dict):
        return tuple((name, structural_key(value[name])) for name in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(map(structural_key, value))
    return value if isinstance(value, Node) else (type(value), value)


def remove_unused_placeholders(graph: Graph) -> int:
    """Drop placeholders nobody reads; layer inputs stay, since they are the boundary to the caller."""
    unused = [node for node in graph.placeholders if not node.users and node.meta["role"] != "input"]
    for node in unused:
        graph.fx.erase_node(node)
    return len(unused)


def reorder(graph: Graph) -> int:
    """Put the nodes into canonical order; returns how many calls changed place."""
    old = graph.calls
    new = _walk(graph)
    for node in new:
        graph.fx.output_node().prepend(node)
    return sum(a is not b for a, b in zip(old, graph.calls, strict=True))


def _walk(graph: Graph) -> list[Node]:
    """Placeholders as they are, then the depth-first walk; the output node is left out."""
    before = _order_edges(graph)
    placed = dict.fromkeys(graph.placeholders)
    output = graph.fx.output_node()

    def visit(node: Node) -> None:
        if node in placed:
            return
        for needed in (*before.get(node, ()), *node.all_input_nodes):
            visit(needed)
        placed[node] = None
        for item in node.users if is_call(node) else ():
            if not is_call(item) and item.op == "call_function":
                visit(item)

    for anchor in (*filter(is_mutating, graph.calls), *output.all_input_nodes):
        visit(anchor)
    return list(placed)


def _order_edges(graph: Graph) -> dict[Node, list[Node]]:
    """Node -> accesses of the same pools that must come before it; two reads need no order."""
    edges: dict[Node, list[Node]] = {}
    past: dict[Node, list[tuple[Node, str]]] = defaultdict(list)
    for node in graph.calls:
        for pool, kind in accesses(node):
            edges.setdefault(node, []).extend(n for n, before in past[pool] if "write" in (kind, before))
            past[pool].append((node, kind))
    return edges


class Canonicalize(GraphPass):
    """Dead code, duplicates and unused placeholders go; what remains is put into canonical order."""

    name = "canonicalize"
    requires = Stage.LOWERED
    ensures = Stage.LOWERED

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """The graph in canonical form; ``fired`` counts what went, and calls that moved."""
        work = graph.copy()
        counts = {
            "dead": remove_dead(work),
            "duplicate": merge_duplicates(work),
            "unused placeholders": remove_unused_placeholders(work),
            "moved": reorder(work),
        }
        fired = sum(counts.values())
        return Rewritten(work if fired else graph, fired, counts=counts)
