"""The store of a step's rows in the twin, as a part of the store in the history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from kvc.compiler_passes.effects import accesses, argument, operands
from kvc.compiler_passes.rewrite import Bindings, WhyNot, describe
from kvc.graphs.graph import Graph, is_op

Node = torch.fx.Node
STORE = "kvc.store_retained_rows"


@dataclass(frozen=True)
class TwinOperands:
    """What an append takes for a twin; nothing without one."""

    operands: tuple[Any, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


def find_twin_store(graph: Graph, found: Bindings, values: Sequence[Node | None]) -> WhyNot | None:
    """Bind ``twin_store``, the store of ``values`` in a twin, None where there is none; or why it stays apart."""
    stores = _stores_of(graph, values)
    found["twin_store"] = stores[0] if stores else None
    if not stores:
        return None
    if len(stores) > 1:
        return WhyNot(stores[1], f"rows go to {len(stores)} twins")
    return _why_not_same(stores[0], values) or _why_not_earlier(graph, found["store"], stores[0])


def _stores_of(graph: Graph, values: Sequence[Node | None]) -> list[Node]:
    """Stores of any of the values; a graph of one layer has one store in a twin, whatever it is given."""
    stores = [call for call in graph.calls if is_op(call, STORE)]
    if sum(is_op(call, "kvc.store_rows") for call in graph.calls) == 1:
        return stores
    return [store for store in stores if any(value in values for value in operands(argument(store, "values")))]


def _why_not_same(store: Node, values: Sequence[Node | None]) -> WhyNot | None:
    if store.kwargs.get("rotated") is not None:
        return WhyNot(store, f"the twin's store rotates {store.kwargs['rotated']} itself")
    given = list(operands(argument(store, "values")))
    for name, value, wanted in zip(store.kwargs["fields"], given, values, strict=True):  # type: ignore[arg-type]
        if value is not wanted:
            what = describe(wanted) if wanted is not None else "nothing"
            return WhyNot(store, f"the twin's {name} is {describe(value)}, the history's {what}")
    return None


def _why_not_earlier(graph: Graph, store: Node, twin_store: Node) -> WhyNot | None:
    """The fused op stands where the history is stored."""
    order = {node: index for index, node in enumerate(graph.fx.nodes)}
    first, last = sorted((order[store], order[twin_store]))
    twin = argument(twin_store, "twin")
    for node in graph.calls:
        if first < order[node] < last and any(pool is twin for pool, _ in accesses(node)):
            return WhyNot(node, f"{describe(node)} uses the twin between the two stores")
    late = next((value for value in twin_store.all_input_nodes if order[value] > order[store]), None)
    return WhyNot(twin_store, f"{describe(late)} is made after the store in the history") if late else None


def take_twin_store(graph: Graph, found: Bindings) -> TwinOperands:
    """The operands of the twin's store, which is erased."""
    store = found["twin_store"]
    if store is None:
        return TwinOperands()
    taken = (argument(store, "twin"), argument(store, "rows"), *argument(store, "scales"))
    attributes = {"twin_encoding": store.kwargs["encoding"]}
    graph.fx.erase_node(store)
    return TwinOperands(taken, attributes)
