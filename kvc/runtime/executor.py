"""Runs a graph: compiled once into a flat list of op calls over numbered values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from kvc.diagnostics import KvcError, fail
from kvc.graphs.graph import Graph, qualified_name
from kvc.ops.kernels import PinnedCall

# An argument: the slot of a value, or a list of slots (a tensor list).
_Argument = int | list[int]


@dataclass(frozen=True)
class _Call:
    """One op call: ``free`` are slots whose last use it is."""

    op: Callable[..., Any]
    arguments: tuple[_Argument, ...]
    keywords: dict[str, Any]
    out: int
    free: tuple[int, ...]
    node: str


class Executor:
    """A compiled graph; one costs nothing to keep and can be run any number of times.

    Inputs are by qualified placeholder name (`input.q`, `pool.history`), outputs by name. Values are dropped after
    their last use, so a step holds what its longest-lived values need.
    """

    def __init__(self, graph: Graph) -> None:
        self.name = graph.name
        self._slots: dict[torch.fx.Node, int] = {}
        self._initial: list[Any] = []
        self.inputs = tuple(qualified_name(node) for node in graph.placeholders)
        for node in graph.placeholders:
            self._slot(node)
        calls = [node for node in graph.fx.nodes if node.op == "call_function"]
        for node in calls:
            self._slot(node)
        self.outputs = {name: self._slots[node] for name, node in graph.outputs.items()}
        last = _last_uses(graph)
        self._calls = tuple(self._call(node, last.get(node, ())) for node in calls)

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Run the graph; ``inputs`` may hold more than it takes. KVC506 names one that is missing.

        A finding of a call says which node it was.
        """
        values = self._initial.copy()
        try:
            for slot, name in enumerate(self.inputs):
                values[slot] = inputs[name]
        except KeyError:
            raise fail("KVC506", f"graph {self.name}: input {name} is missing") from None
        try:
            for call in self._calls:
                arguments = [[values[i] for i in a] if isinstance(a, list) else values[a] for a in call.arguments]
                values[call.out] = call.op(*arguments, **call.keywords)
                for slot in call.free:
                    values[slot] = None
        except KvcError as error:
            raise error.at(f"graph {self.name}: call {call.node}") from error
        except RuntimeError as error:
            error.add_note(f"graph {self.name}: call {call.node}")
            raise
        return {name: values[slot] for name, slot in self.outputs.items()}

    def _slot(self, node: torch.fx.Node) -> None:
        self._slots[node] = len(self._initial)
        self._initial.append(None)

    def _constant(self, value: Any) -> int:
        self._initial.append(value)
        return len(self._initial) - 1

    def _argument(self, value: Any) -> _Argument:
        if isinstance(value, list | tuple) and any(isinstance(item, torch.fx.Node) for item in value):
            return [self._slots[v] if isinstance(v, torch.fx.Node) else self._constant(v) for v in value]
        return self._slots[value] if isinstance(value, torch.fx.Node) else self._constant(value)

    def _call(self, node: torch.fx.Node, last_uses: tuple[torch.fx.Node, ...]) -> _Call:
        nodes = [name for name, value in node.kwargs.items() if isinstance(value, torch.fx.Node)]
        if nodes:
            raise ValueError(
                f"graph {self.name}: keyword {nodes[0]} of {node.target} is a tensor; tensors are positional"
            )
        assert callable(node.target)
        kernel = node.meta.get("kernel")
        return _Call(
            PinnedCall(node.target, kernel) if kernel else node.target,
            tuple(self._argument(value) for value in node.args),
            dict(node.kwargs),
            self._slots[node],
            tuple(self._slots[value] for value in last_uses),
            node.name,
        )


def _last_uses(graph: Graph) -> dict[torch.fx.Node, tuple[torch.fx.Node, ...]]:
    """Call -> values that nothing reads after it (its own result, if nothing reads that at all)."""
    last: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.fx.nodes:
        for value in (node, *node.all_input_nodes):
            last[value] = node
    found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for value, node in last.items():
        if value.op == "call_function" and node.op == "call_function":
            found.setdefault(node, []).append(value)
    return {node: tuple(values) for node, values in found.items()}
