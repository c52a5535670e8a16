"""A call that reaches into a pool does so by that pool's own page table, whatever the table went through."""

from collections.abc import Iterable, Iterator

import torch.fx

from kvc.compiler_passes.effects import argument, is_mutating, operands, takes
from kvc.graphs.graph import Graph, is_op, qualified_name
from kvc.graphs.program import Program, signature_of

Node = torch.fx.Node

# Schema argument for a pool -> the arguments that say where in it.
_PLACES = {"pool": ("page_table", "rows"), "twin": ("twin_table", "twin_rows")}


def tables_are_of_the_pools(program: Program, before: Program | None) -> Iterator[tuple[str, str]]:
    """The page table, or the rows made of it, that a call takes for a pool is the table of the pool bound to it."""
    bound = {binding.signature: binding.pools for binding in program.bindings}
    for (name, phase), graph in program.graphs.items():
        prologue = program.prologues.get(phase)
        for pool, place in _uses(graph):
            wanted = bound.get(signature_of(name), {}).get(str(pool.target), (None, 0))[0]
            pools = _pools_of([place], prologue)
            if not pools and not _is_lost(place, prologue):
                yield f"{name}.{phase}", f"reaches into {qualified_name(pool)} by no page table of the step"
            for found in sorted(pools - {wanted}):
                used = f"uses the page table of pool {found} for {qualified_name(pool)}"
                yield f"{name}.{phase}", f"{used}; it is bound to {wanted}"


def _is_lost(place: Node, prologue: Graph | None) -> bool:
    """Whether it comes from a prologue that does not make it, which another rule says."""
    return place.meta.get("role") == "prologue" and str(place.target) not in (prologue.outputs if prologue else ())


def _uses(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Pool placeholders and the values that say where in them, once each."""
    pairs = (
        (pool, place)
        for call in graph.calls
        for name in _PLACES
        for pool in operands(argument(call, name))
        for where in _places(call, name)
        for place in operands(argument(call, where))
        if pool.meta.get("role") == "pool"
    )
    yield from dict.fromkeys(pairs)


def _places(call: Node, name: str) -> tuple[str, ...]:
    """`rows` says where, unless they are gathered ones; a store that knows no pool but the twin writes there."""
    if name == "twin" and not takes(call, "pool"):
        return (*_PLACES[name], *(("rows",) if is_mutating(call) else ()))
    return _PLACES[name]


def _pools_of(nodes: Iterable[Node], prologue: Graph | None) -> set[int]:
    """The pools whose page tables values are made of, in a layer's graph and in its prologue."""
    open_nodes, seen, pools = list(nodes), set[Node](), set[int]()
    while open_nodes:
        node = open_nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        open_nodes += node.all_input_nodes
        if node.meta.get("role") == "prologue" and prologue and str(node.target) in prologue.outputs:
            open_nodes.append(prologue.outputs[str(node.target)])
        if is_op(node, "aten.select.int") and is_op(node.args[0], "kvc.copy_page_tables"):
            pools.add(int(node.kwargs["index"]))  # type: ignore[arg-type]
    return pools
