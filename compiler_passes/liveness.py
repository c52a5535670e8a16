"""From when to when the values of a graph are alive, and places in one workspace where no two of them meet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from kvc.compat import storage_id
from kvc.compiler_passes.effects import is_call
from kvc.compiler_passes.select_kernels import is_kvc
from kvc.graphs.graph import Graph, op_name
from kvc.graphs.program import Program, Region
from kvc.graphs.text import value_names
from kvc.ops import OPS

Node = torch.fx.Node
ALIGNMENT = 256  # of every value: what CUDA's own allocator gives


# Pages of a pool, of a twin, of index keys, rows of a table and of feedback, sequences and rows of staging: of
# placeholders alone, so any size does.
_NOT_IN_INTERMEDIATES = {"P": 1, "Q": 1, "I": 1, "M": 1, "A": 1, "E": 1, "L": 1}


def limits(program: Program) -> Mapping[str, int]:
    """The largest sizes of a step: tokens, sequences, and pages of the longest sequence."""
    step = {"T": program.max_tokens, "B": max(program.buckets, default=0), "W": program.table_width}
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
    outside = {storage_id(values[node]) for node in (*graph.placeholders, *graph.outputs.values())}
    found: dict[int, Live] = {}
    for node in graph.calls:
        for index, value in enumerate(_results(values[node])):
            if storage_id(value) not in {*outside, *found}:
                size = value.untyped_storage().nbytes()
                found[storage_id(value)] = Live(names[node, index], size, order[node], order[node])
    for node, value in values.items():
        live = found.get(storage_id(value)) if isinstance(value, torch.Tensor) else None
        if live:
            last = max((order[user] for user in node.users if is_call(user)), default=live.last)
            found[storage_id(value)] = replace(live, last=max(live.last, last))
    return [live for live in (*found.values(), *_scratch(graph, values, names)) if live.bytes]


def _results(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, list | tuple) else () if value is None else (value,)


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


def _scratch(graph: Graph, values: Mapping[Node, Any], names: Mapping[tuple[Node, int], str]) -> Iterator[Live]:
    """What calls need while they run, named after their first result."""
    for index, node in enumerate(graph.fx.nodes):
        if is_call(node) and is_kvc(node):
            op = OPS[op_name(node.target).removeprefix("kvc.")]
            size = op.scratch(*map_arg(node.args, values.__getitem__), **node.kwargs)
            yield Live(f"scratch of {names.get((node, 0), node.name)}", size, index, index)


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
