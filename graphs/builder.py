"""Builds graphs call by call with fake-tensor propagation."""

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

import kvc.ops  # noqa: F401  registers the kvc:: namespace
from kvc.diagnostics import fail
from kvc.graphs.graph import ROLES, Graph, find_op
from kvc.graphs.symbols import Size, Symbols

_AS_RECORDED: Mapping[torch.fx.Node, torch.Tensor] = MappingProxyType({})

Results = torch.fx.Node | tuple[torch.fx.Node, ...] | None


def insert_call(graph: Graph, name: str, *args: Any, source: str = "", **attributes: Any) -> Results:
    """Append a call at the graph's insertion point and infer its results.

    ``args`` are nodes, None or lists of nodes; ``attributes`` are the op's keyword arguments. Returns the node, a tuple
    of getitem nodes for several results, or None for none. Raises KVC301 where the op refuses the arguments.
    """
    target = find_op(name)
    value = propagate(graph, name, target, args, attributes)
    node = graph.fx.call_function(target, args, attributes)
    node.meta.update(val=value, source=source)
    if not isinstance(value, list | tuple):
        return node if value is not None else None
    return tuple(_take(graph, node, index) for index in range(len(value)))


def propagate(
    graph: Graph,
    name: str,
    target: Any,
    args: Any,
    attributes: Mapping[str, Any],
    instead: Mapping[torch.fx.Node, torch.Tensor] = _AS_RECORDED,
) -> Any:
    """The fake results of a call; ``instead`` of what nodes hold. KVC301 where the op refuses the arguments."""
    fakes = map_arg(args, lambda node: instead.get(node, node.meta["val"]))
    try:
        return target(*fakes, **attributes)
    except Exception as error:
        reason = graph.symbols.readable(str(error).splitlines()[0])
        raise fail("KVC301", f"graph {graph.name}: {name} refuses its arguments: {reason}") from error


def _take(graph: Graph, node: torch.fx.Node, index: int) -> torch.fx.Node:
    item = graph.fx.call_function(operator.getitem, (node, index))
    item.meta.update(val=node.meta["val"][index], source=node.meta["source"])
    return item


class GraphBuilder:
    """Builds one graph: placeholders first, then calls, then the outputs."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name, torch.fx.Graph(), Symbols())

    def placeholder(self, role: str, name: str, dtype: torch.dtype, shape: tuple[Size, ...]) -> torch.fx.Node:
        """Declare an input ``role.name`` of ``dtype`` and named ``shape`` (`("T", 32, 128)`)."""
        if role not in ROLES:
            raise ValueError(f"role {role!r} is none of {', '.join(ROLES)}")
        node = self.graph.fx.placeholder(name)
        node.meta.update(val=self.graph.symbols.tensor(dtype, shape), role=role, source="")
        return node

    def call(self, name: str, *args: Any, source: str = "", **attributes: Any) -> Any:
        """Call the op written as ``name`` (`kvc.rope`); see `insert_call`."""
        return insert_call(self.graph, name, *args, source=source, **attributes)

    def finish(self, outputs: Mapping[str, torch.fx.Node]) -> Graph:
        """Name the outputs and hand the graph over."""
        self.graph.fx.output(dict(outputs))
        self.graph.fx.lint()
        return self.graph
