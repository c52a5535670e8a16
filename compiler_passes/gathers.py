"""What the passes that fold gathers share: the one call that values are gathered by, and why there is none."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch.fx

from kvc.compat import op_schema
from kvc.compiler_passes.effects import accesses, argument, producer
from kvc.compiler_passes.rewrite import WhyNot, describe
from kvc.graphs.builder import insert_call
from kvc.graphs.graph import Graph, find_op, is_op, result

Node = torch.fx.Node


def gathering_call(taker: Node, rows: Sequence[Node], ops: Sequence[str]) -> Node | WhyNot:
    """The call of one of ``ops`` whose results, all of them in order, are ``rows`` of ``taker`` and of nobody else."""
    made = [producer(row) for row in rows]
    call = made[0][0]
    if not any(is_op(call, op) for op in ops):
        return WhyNot(taker, f"rows[0] is {describe(rows[0])}, not {' or '.join(ops)}")
    if [index for _, index in made] != list(range(len(call.meta["val"]))) or any(one is not call for one, _ in made):
        return WhyNot(taker, f"the rows are not the results of one {describe(call)}, all of them in order")
    for row in rows:
        other = next((user for user in row.users if user is not taker), None)
        if other is not None:
            return WhyNot(other, f"gathered rows go to {describe(other)} too")
    return call


def differing(call: Node, other: Node, names: Sequence[tuple[str, str]]) -> WhyNot | None:
    """The first pair of arguments, of ``call`` and of ``other``, that are not the same."""
    for name, its in names:
        given, wanted = _argument(call, name), _argument(other, its)
        if given is not wanted and given != wanted:
            return WhyNot(call, f"{name} is {describe(given)}, {its} of {describe(other)} is {describe(wanted)}")
    return None


def _argument(call: Node, name: str) -> Any:
    """Operand or attribute."""
    return call.kwargs[name] if name in call.kwargs else argument(call, name)


def written_between(graph: Graph, first: Node, last: Node) -> WhyNot | None:
    """A write, between two calls, of a pool that the first reads: it cannot be read later."""
    order = {node: index for index, node in enumerate(graph.fx.nodes)}
    pools = {pool for pool, _ in accesses(first)}
    for node in graph.calls:
        if order[first] < order[node] < order[last] and any((pool, "write") in accesses(node) for pool in pools):
            return WhyNot(node, f"{describe(node)} writes the pool between the gather and {describe(last)}")
    return None


def put_in_place(graph: Graph, old: Node, op: str, values: Mapping[str, Any]) -> None:
    """Call ``op`` where ``old`` stands, with those of ``values`` that it takes; its results serve old's users."""
    args, attributes = by_schema(find_op(op), values)
    with graph.fx.inserting_before(old):
        made = insert_call(graph, op, *args, source=old.meta["source"], **attributes)
    for index, value in enumerate(made):  # type: ignore[arg-type]
        taken = result(old, index)
        if taken is not None:
            taken.replace_all_uses_with(value)


def by_schema(op: Any, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Operands in the order of the op's schema, without trailing ones that are left out, and its attributes.

    Values that the op has no argument for are dropped.
    """
    arguments = op_schema(op).arguments
    operands = [values.get(one.name) for one in arguments if not one.kwarg_only]
    while operands and operands[-1] is None and _optional(arguments[len(operands) - 1]):
        operands.pop()
    return operands, {one.name: values[one.name] for one in arguments if one.kwarg_only and one.name in values}


def _optional(parameter: Any) -> bool:
    return bool(parameter.has_default_value())
