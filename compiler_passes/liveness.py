"""From when to when the values of a graph are alive, and places in one workspace where no two of them meet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from kvc.compat import storage_id
from kvc.compiler_passes.select_kernels import is_kvc
from kvc.graphs.graph import Graph, op_name, result_values
from kvc.graphs.program import Program, Region
from kvc.graphs.text import value_names
from kvc.ops import OPS

Node = torch.fx.Node
ALIGNMENT = 256  # of every value: what CUDA's own allocator gives


# Pages of a pool and rows of a table: of placeholders alone, so any size does.
_NOT_IN_INTERMEDIATES = {"P": 1, "M": 1}


def limits(program: Program) -> Mapping[str, int]:
    """The largest sizes of a step: tokens, sequences, and pages of the longest sequence."""
    step = {"T": program.max_tokens, "B": program.buckets[-1], "W": program.table_width}
    return step | _NOT_IN_INTERMEDIATES


@dataclass(frozen=True)
class Live:
    """Memory of ``bytes`` that holds something from call ``first`` to call ``last`` of a graph, both included."""

    value: str
    bytes: int
    first: int
    last: int

    def meets(self, other: "Live") -> bool:
        """Whether both are alive at one call."""
        return self.first <= other.last and other.first <= self.last


def live_values(graph: Graph, sizes: Mapping[str, int]) -> list[Live]:
    """The intermediates and the scratch of a graph whose dimensions have these sizes.

    Intermediates are results of calls that are neither views (those keep what they show alive) nor outputs.
    """
    values, names = _evaluate(graph, sizes), value_names(graph)
    order = {node: index for index, node in enumerate(graph.fx.nodes)}
    given = {storage_id(values[node]) for node in (*graph.placeholders, *graph.outputs.values())}
    found: dict[int, Live] = {}
    for node in graph.fx.nodes:
        value = values.get(node)
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or storage_id(value) in given:
            continue
        made = order[node if node in graph.calls else node.args[0]]
        last = max((order[user] for user in node.users), default=made)
        first = found.get(storage_id(value)) or Live(names[node], value.untyped_storage().nbytes(), made, last)
        found[storage_id(value)] = Live(first.value, first.bytes, first.first, max(first.last, last))
    return [live for live in (*found.values(), *_scratch(graph, values, names, order)) if live.bytes]


def _evaluate(graph: Graph, sizes: Mapping[str, int]) -> dict[Node, Any]:
    """Every value on the meta device, in the sizes: its storage says how many bytes it is."""
    values: dict[Node, Any] = {}
    for node in graph.fx.nodes:
        if node.op == "placeholder":
            shape = [graph.symbols.number(size, sizes) for size in node.meta["val"].shape]
            values[node] = torch.empty(shape, dtype=node.meta["val"].dtype, device="meta")
        elif node.op == "call_function":
            values[node] = node.target(*map_arg(node.args, values.__getitem__), **node.kwargs)  # type: ignore[operator]
    return values


def _scratch(graph: Graph, values: Mapping[Node, Any], names: Mapping[Node, str], order: Mapping[Node, int]) -> Iterator[Live]:
    """What calls need while they run, named after their first result."""
    for node in filter(is_kvc, graph.calls):
        op = OPS[op_name(node.target).removeprefix("kvc.")]
        size = op.scratch(*map_arg(node.args, values.__getitem__), **node.kwargs)
        if size:
            yield Live(f"scratch of {_first_name(node, names)}", size, order[node], order[node])


def _first_name(node: Node, names: Mapping[Node, str]) -> str:
    return next((names[value] for value in (node, *node.users) if value in names), node.name)


def place(graph: str, values: Sequence[Live]) -> tuple[Region, ...]:
    """Offsets, large values first, each as low as what lives at the same time allows; in the order of ``values``."""
    placed: dict[Live, int] = {}
    for value in sorted(values, key=lambda value: -value.bytes):
        offset = 0
        for start, end in sorted((at, at + other.bytes) for other, at in placed.items() if other.meets(value)):
            if offset + value.bytes <= start:
                break
            offset = max(offset, -(-end // ALIGNMENT) * ALIGNMENT)
        placed[value] = offset
    return tuple(Region(graph, value.value, placed[value], value.bytes) for value in values)
