"""The form that the rewrite rules read, and back: pools written in place, in program order.

Inductor's graphs are functional. A call that writes a pool is `auto_functionalized_v2(op, ..., _pool_base_index=0,
_all_bases=[pool])`; its results are those of the op, then the pool's next version, which later reads take.

`to_in_place` turns such calls into plain ones on the pool itself, `to_functional` turns every plain one back, the new
ones among them. In between, program order says what a read sees; a call for which order does not say the same as
versions do is left as it is, with the reason.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.fx
from torch.fx.node import map_arg

from kvc.compat import auto_functionalized, op_schema
from kvc.compiler_passes.canonicalize import structural_key
from kvc.compiler_passes.effects import argument, is_call, is_mutating, operands
from kvc.compiler_passes.gathers import by_schema
from kvc.compiler_passes.rewrite import WhyNot
from kvc.graphs.graph import NAMESPACES, result_values
from kvc.ops.axes import known

Node = torch.fx.Node
PREFIX = f"{NAMESPACES[0]}::"

_OF_OLD_ARGUMENTS = "eager_input_vals"  # meta of a call that does not hold for another one in its place

# How `auto_functionalized_v2` says which part of its base an argument is -> the op that makes this part.
_VIEWS = {
    ("size", "stride", "storage_offset"): torch.ops.aten.as_strided.default,
    ("slice_dim", "slice_start", "slice_end"): torch.ops.aten.slice.Tensor,
}


# ---- into the rules' form ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """One argument that a functional call writes: a pool, or a view of the memory that it is given with."""

    node: Node
    name: str

    @property
    def place(self) -> int:
        """Which of the call's bases it is."""
        return self.node.kwargs[f"_{self.name}_base_index"]  # type: ignore[return-value]

    @property
    def base(self) -> Node:
        """The version of the pool that the call is given."""
        return self.node.kwargs["_all_bases"][self.place]  # type: ignore[return-value, index, call-overload]

    @property
    def version(self) -> Node | None:
        """The version that it makes, None where nobody takes it."""
        place = _result_count(self.node.args[0]) + self.place
        return next((user for user in self.node.users if user.args[1] == place), None)

    @property
    def view(self) -> tuple[Any, tuple[Any, ...]] | None:
        """The op and its arguments that make the written view of the base; None for the base or an alias of it."""
        prefix = f"_{self.name}_"
        given = {key.removeprefix(prefix): value for key, value in self.node.kwargs.items() if key.startswith(prefix)}
        for names, op in _VIEWS.items():
            if names[0] in given:
                return op, tuple(given[name] for name in names)
        return None


@dataclass(frozen=True)
class FunctionalCall:
    """One `auto_functionalized_v2` node of a kvc op that writes."""

    node: Node

    @property
    def op(self) -> Any:
        """The op that writes."""
        return self.node.args[0]

    @property
    def written(self) -> tuple[Written, ...]:
        """The arguments that it writes; optional ones that are not given write nothing."""
        given = (name for name in written_names(self.op) if self.node.kwargs.get(f"_{name}_base_index") is not None)
        return tuple(Written(self.node, name) for name in given)

    def why_unknown(self) -> str | None:
        """What this module cannot take in place, whatever is around it."""
        bases = [one.base for one in self.written]
        if not bases or len(set(bases)) < len(bases):
            return f"it writes {len(bases)} arguments" if not bases else "two arguments that it writes share memory"
        parts = ("base_index", "alias", *(name for names in _VIEWS for name in names))
        known = {"_all_bases", *(f"_{name}_{part}" for name in written_names(self.op) for part in parts)}
        given = {key for key in self.node.kwargs if key.startswith("_")}
        return f"the pool is given as {', '.join(sorted(given - known))}" if given - known else None


def written_names(op: Any) -> tuple[str, ...]:
    """The arguments that an op writes."""
    return tuple(a.name for a in op_schema(op).arguments if a.alias_info and a.alias_info.is_write)


def _result_count(op: Any) -> int:
    """How many results stand before the versions: one, None, for an op that returns nothing."""
    return max(1, len(op_schema(op).returns))


def functional_calls(fx: torch.fx.Graph) -> list[FunctionalCall]:
    """The kvc calls that write, in program order."""
    nodes = fx.find_nodes(op="call_function", target=auto_functionalized())
    return [FunctionalCall(node) for node in nodes if str(node.args[0].name()).startswith(PREFIX)]


def to_in_place(fx: torch.fx.Graph) -> list[WhyNot]:
    """Turn the functional calls into plain ones; returns those that stay, and why."""
    for call in reversed(functional_calls(fx)):
        _sink(fx, call)
    kept = []
    views: dict[Any, Node] = {}
    for call in functional_calls(fx):
        reason = call.why_unknown() or _why_out_of_order(fx, call)
        if reason:
            kept.append(WhyNot(call.node, reason))
        else:
            _take_in_place(fx, call, views)
    for node in fx.nodes:
        _mark(node)
    return kept


def _sink(fx: torch.fx.Graph, call: FunctionalCall) -> None:
    """Move a write to where its results are first needed: inductor's order is any, and the rules want what the fused
    op takes to stand before it."""
    order = {node: index for index, node in enumerate(fx.nodes)}
    items = sorted(call.node.users, key=order.__getitem__)
    users = [user for item in items for user in item.users]
    for node in (call.node, *items) if users else ():
        min(users, key=order.__getitem__).prepend(node)


def _why_out_of_order(fx: torch.fx.Graph, call: FunctionalCall) -> str | None:
    """Whether something reads the pool as it was before this call, and stands after it."""
    order = {node: index for index, node in enumerate(fx.nodes)}
    readers = (reader for one in call.written for reader in _readers(one.base) if reader is not call.node)
    late = next((reader for reader in readers if order[reader] > order[call.node]), None)
    return None if late is None else f"{late.name} reads the pool as it was before this call"


def _readers(value: Node) -> Iterator[Node]:
    """The nodes that read a value or a view of it."""
    for user in value.users:
        if user.target is operator.getitem or _is_view(user):
            yield from _readers(user)
        elif any(value in operands(given) for _, given, written in _arguments(user) if not written):
            yield user


def _arguments(node: Node) -> Iterator[tuple[Any, Any, bool]]:
    """Each argument by position or name, and whether the node writes it: inductor's graphs end with a `copy_`."""
    parameters = op_schema(node.target).arguments if is_call(node) else ()
    written = {key for at, p in enumerate(parameters) if p.alias_info and p.alias_info.is_write for key in (at, p.name)}
    for key, value in (*enumerate(node.args), *node.kwargs.items()):
        yield key, value, key in written


def _is_view(node: Node) -> bool:
    results = op_schema(node.target).returns if is_call(node) else ()
    return any(result.alias_info and not result.alias_info.is_write for result in results)


def _take_in_place(fx: torch.fx.Graph, call: FunctionalCall, views: dict[Any, Node]) -> None:
    """Put the plain call in the place of the functional one, and the pool in the place of its next version."""
    op, count, results = call.op, len(op_schema(call.op).returns), call.node.meta["val"]
    with fx.inserting_before(call.node):
        pools = {one.name: _view_of(fx, one, views) for one in call.written}
        plain = fx.call_function(op, *_by_convention(op, {**call.node.kwargs, **pools}))
    plain.meta = _meta_without_arguments(call.node)
    plain.meta["val"] = None if count == 0 else results[0] if count == 1 else tuple(results[:count])
    for one in call.written:
        pools[one.name].meta["role"] = "pool"
        if one.version is not None:
            _read_in_place(one.version, one.base, pools[one.name])
    if count == 1:
        for item in list(call.node.users):
            item.replace_all_uses_with(plain)
            fx.erase_node(item)
    for item in list(call.node.users):
        item.replace_input_with(call.node, plain)
    fx.erase_node(call.node)


def _read_in_place(version: Node, base: Node, pool: Node) -> None:
    """Let the readers of a version read the pool; a view of the version that shows what was written is the pool."""
    for user in list(version.users):
        if _is_view(user) and _shown(user) == _shown(pool):
            user.replace_all_uses_with(pool)
    version.replace_all_uses_with(base)
    version.graph.erase_node(version)


def _view_of(fx: torch.fx.Graph, one: Written, views: dict[Any, Node]) -> Node:
    """The node that stands for what is written: the base, or one view node for all calls that write this part."""
    if one.view is None:
        return one.base
    op, args = one.view
    view = fx.call_function(op, (one.base, *args))
    view.meta["val"] = op(*map_arg(view.args, lambda node: node.meta["val"]))
    return views.setdefault((one.base, _shown(view)), view)


def _shown(view: Node) -> Any:
    """Equal for views of one base that show the same part of it.

    Where sizes are symbolic, only for the same op with the same arguments: comparing would add guards, and torch 2.13
    records an offset of 0 for some views of dynamic shape.
    """
    value = view.meta["val"]
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return numbers if known(*numbers) else (view.target, structural_key(view.args[1:]))


def _meta_without_arguments(node: Node) -> dict[str, Any]:
    return {key: value for key, value in node.meta.items() if key != _OF_OLD_ARGUMENTS}


def _by_convention(op: Any, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as kvc's graphs have them: tensors by position, everything else by keyword, defaults left out."""
    tensors, attributes = by_schema(op, given)
    defaults = {p.name: p.default_value for p in op_schema(op).arguments if p.kwarg_only and p.has_default_value()}
    return tuple(tensors), {n: v for n, v in attributes.items() if n not in defaults or v != defaults[n]}


def _mark(node: Node) -> None:
    """Give a node what the rules expect of kvc's graphs."""
    if node.op == "placeholder":
        node.meta.setdefault("role", "input")
    if _is_ours(node):
        given = {p.name: node.args[i] for i, p in enumerate(op_schema(node.target).arguments) if i < len(node.args)}
        node.args, node.kwargs = _by_convention(node.target, given | node.kwargs)
        node.meta["source"] = source_line(node)


def source_line(node: Node) -> str:
    """`model.py:12`, where the user called the op; empty where torch does not say."""
    frames = [line.split('"') for line in node.meta.get("stack_trace", "").splitlines() if 'File "' in line]
    if not frames:
        return ""
    _, path, rest = frames[-1][:3]
    return f"{path.rpartition('/')[2]}:{rest.split('line ')[-1].split(',')[0]}"


# ---- and back ----------------------------------------------------------------------------------------------------


class _Versions:
    """What the readers of a pool take at one place of the program: its last version, or a view of that."""

    def __init__(self, fx: torch.fx.Graph) -> None:
        self.fx = fx
        self.bases = {node: _base_of(node) for node in fx.nodes if node.meta.get("role") == "pool"}
        self.last: dict[Node, Node] = {}

    def of(self, pool: Node) -> Node:
        """The last version of a pool, or of the pool that is viewed."""
        base = self.bases.get(pool, pool)
        return self.last.get(base, base)

    def read(self, value: Node) -> Node:
        """What a reader takes for ``value``, made where the graph inserts."""
        base, now = self.bases.get(value, value), self.of(value)
        if base is value or now is base:
            return now
        again = self.fx.node_copy(value, lambda node: now if node is value.args[0] else node)
        del again.meta["role"]
        return again


def _base_of(pool: Node) -> Node:
    """A pool, or the one that a node made by `_view_of` shows."""
    return pool.args[0] if pool.target in _VIEWS.values() else pool  # type: ignore[return-value]


def to_functional(fx: torch.fx.Graph) -> None:
    """Turn the plain calls that write into functional ones and let later readers take the versions that those make."""
    versions, traces = _Versions(fx), _stack_traces(fx)
    for node in list(fx.nodes):
        with fx.inserting_before(node):
            _read_versions(node, versions)
            if _is_ours(node) and is_mutating(node):
                _take_functional(fx, node, versions)
    for node in list(fx.nodes):
        _unmark(node, traces)


def _is_ours(node: Node) -> bool:
    return is_call(node) and str(node.target.name()).startswith(PREFIX)  # type: ignore[union-attr]


def _read_versions(node: Node, versions: _Versions) -> None:
    renewed = {key: value if written else map_arg(value, versions.read) for key, value, written in _arguments(node)}
    node.args = tuple(renewed[at] for at in range(len(node.args)))
    node.kwargs = {name: renewed[name] for name in node.kwargs}


def _take_functional(fx: torch.fx.Graph, node: Node, versions: _Versions) -> None:
    """Put the functional call, and the versions that it makes, in the place of the plain one."""
    op, values, names = node.target, result_values(node), written_names(node.target)
    pools = {name: argument(node, name) for name in names}
    given = {p.name: argument(node, p.name) for p in op_schema(op).arguments if p.name not in names}
    bases = {name: versions.of(pool) for name, pool in pools.items() if pool is not None}
    for name, pool in pools.items():
        given[f"_{name}_base_index"] = list(bases).index(name) if pool is not None else None
        given |= _view_arguments(name, pool, versions)
    given["_all_bases"] = list(bases.values())
    made = fx.call_function(auto_functionalized(), (op,), given)  # type: ignore[arg-type]
    made.meta = {**node.meta, "val": (*(values or (None,)), *(base.meta["val"] for base in bases.values()))}
    for place, name in enumerate(bases):
        versions.last[versions.bases.get(pools[name], pools[name])] = _item(fx, made, _result_count(op) + place)
    if len(values) == 1:
        node.replace_all_uses_with(_item(fx, made, 0))
    node.replace_all_uses_with(made)
    fx.erase_node(node)


def _view_arguments(name: str, pool: Node | None, versions: _Versions) -> dict[str, Any]:
    if pool is None or versions.bases.get(pool, pool) is pool:
        return {}
    names = next(names for names, op in _VIEWS.items() if op is pool.target)
    return {f"_{name}_{part}": value for part, value in zip(names, pool.args[1:], strict=True)}


def _item(fx: torch.fx.Graph, call: Node, index: int) -> Node:
    item = fx.call_function(operator.getitem, (call, index))
    item.meta["val"] = call.meta["val"][index]
    return item


def _stack_traces(fx: torch.fx.Graph) -> dict[str, str]:
    """Source line -> the trace that ends there, for the calls that rules made."""
    nodes = (node for node in fx.nodes if node.meta.get("source"))
    return {node.meta["source"]: node.meta["stack_trace"] for node in nodes if "stack_trace" in node.meta}


def _unmark(node: Node, traces: dict[str, str]) -> None:
    node.meta.pop("role", None)
    source = node.meta.pop("source", "")
    if source in traces:
        node.meta.setdefault("stack_trace", traces[source])
    if node.target in _VIEWS.values() and not node.users:
        node.graph.erase_node(node)
