"""What a call reads and writes, from its op's schema: the order of pool accesses is part of a program's meaning."""

import operator
from collections.abc import Iterator
from typing import Any, Literal

import torch.fx

from kvc.compat import is_op_overload, op_schema
from kvc.graphs.graph import Graph

Access = tuple[torch.fx.Node, Literal["read", "write"]]


def is_call(node: Any) -> bool:
    """Whether ``node`` is an op call; the getitem nodes of multi-output ops are not."""
    return isinstance(node, torch.fx.Node) and is_op_overload(node.target)


def producer(node: torch.fx.Node) -> tuple[torch.fx.Node, int]:
    """The call (or placeholder) that makes a value, and which of its results the value is."""
    if node.target is operator.getitem:
        call, index = node.args
        return call, index  # type: ignore[return-value]
    return node, 0


def argument(node: torch.fx.Node, name: str) -> Any:
    """The argument that the op's schema calls ``name``; None where it is left out or the op has none of that name."""
    for position, parameter in enumerate(op_schema(node.target).arguments):
        if parameter.name == name:
            left_out = parameter.default_value if parameter.has_default_value() else None
            return node.args[position] if position < len(node.args) else node.kwargs.get(name, left_out)
    return None


def takes(node: torch.fx.Node, name: str) -> bool:
    """Whether the op's schema has an argument of that name."""
    return any(parameter.name == name for parameter in op_schema(node.target).arguments)


def operands(value: Any) -> Iterator[torch.fx.Node]:
    """The nodes in an argument, lists opened."""
    if isinstance(value, torch.fx.Node):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from operands(item)


def is_mutating(node: torch.fx.Node) -> bool:
    """Whether the call writes one of its arguments in place."""
    return is_call(node) and op_schema(node.target).is_mutable


def mutated(node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """The nodes that a call writes in place."""
    if not is_mutating(node):
        return ()
    parameters = op_schema(node.target).arguments
    written = (p.name for p in parameters if p.alias_info is not None and p.alias_info.is_write)
    return tuple(value for name in written for value in operands(argument(node, name)))


def accesses(node: torch.fx.Node) -> tuple[Access, ...]:
    """How a call uses pools: each pool placeholder among its arguments, written or read."""
    if not is_call(node):
        return ()
    written = set(mutated(node))
    pools = (value for value in node.all_input_nodes if value.meta.get("role") == "pool" or value in written)
    return tuple((pool, "write" if pool in written else "read") for pool in pools)


def access_history(graph: Graph) -> dict[str, str]:
    """Pool -> its accesses in program order, `W` and `R`, adjacent reads as one (they commute)."""
    history: dict[str, str] = {}
    for node in graph.calls:
        for pool, kind in accesses(node):
            past = history.get(str(pool.target), "")
            repeated = kind == "read" and past.endswith("R")
            history[str(pool.target)] = past if repeated else past + kind[0].upper()
    return history


def remove_dead(graph: Graph) -> int:
    """Erase calls whose results nobody takes and that do nothing else; returns how many ops went."""
    removed = 0
    for node in reversed(list(graph.fx.nodes)):
        if node.op == "call_function" and not node.users and not is_mutating(node) and not node.is_impure():
            removed += is_call(node)
            graph.fx.erase_node(node)
    return removed
