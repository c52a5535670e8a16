"""One FX graph of ``kvc::`` ops and the conventions every builder, pass and printer relies on."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from kvc.compat import is_op_overload, op_schema, overload_name
from kvc.graphs.symbols import Symbols

# What a placeholder stands for: `input` the caller's tensors, `step` a section of the packed step buffer, `feedback`
# what the engine left on the device after the step before, `prologue` an output of the phase's prologue, `selected` an
# output of an earlier layer's graph, `pool` cache memory, `staging` the engine's memory that a history is copied to and
# new rows are taken from, `scale`/`table`/`weight` constants bound per layer.
ROLES = ("input", "step", "feedback", "prologue", "selected", "pool", "staging", "scale", "table", "weight")

# What an input may hold in place of values of its own type: codes, made by the caller under the scale operand that the
# ops of the graph would use.
CODES: dict[str, torch.dtype] = {"e4m3": torch.float8_e4m3fn}

# Of the ops that a graph may call.
NAMESPACES = ("kvc", "aten")


@dataclass
class Graph:
    """An FX graph with named dimensions.

    Placeholders carry ``meta["role"]`` (one of ROLES) and are named by ``node.target``; calls take tensors as
    positional arguments and everything else as keywords; ``meta["val"]`` is the fake value (a meta tensor),
    ``meta["source"]`` the spec line it comes from, ``meta["kernel"]`` the implementation chosen by `select_kernels`,
    ``meta["accepts"]`` of an input the kinds of CODES that it may hold. The output node holds a dict.
    """

    name: str
    fx: torch.fx.Graph
    symbols: Symbols

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        """Placeholders in order."""
        return self.fx.find_nodes(op="placeholder")

    @property
    def calls(self) -> list[torch.fx.Node]:
        """Op calls in program order; the getitem nodes of multi-output ops are left out."""
        return [node for node in self.fx.nodes if is_op_overload(node.target)]

    @property
    def outputs(self) -> Mapping[str, torch.fx.Node]:
        """Output name -> node."""
        return self.fx.output_node().args[0]  # type: ignore[return-value]

    def copy(self, name: str | None = None) -> "Graph":
        """An independent copy that a pass may change; fake values are shared."""
        fx = torch.fx.Graph()
        fx.output(fx.graph_copy(self.fx, {}))
        return Graph(name or self.name, fx, self.symbols)


def qualified_name(placeholder: torch.fx.Node) -> str:
    """`role.name`, unique among a graph's placeholders."""
    return f"{placeholder.meta['role']}.{placeholder.target}"


def op_name(target: Any) -> str:
    """`kvc.rope`, `aten.select.int`: the text form of an op overload."""
    namespace, name = target.name().split("::") if "::" in target.name() else ("aten", target.name())
    base = name.split(".")[0]
    overload = overload_name(target)
    return f"{namespace}.{base}" if overload == "default" else f"{namespace}.{base}.{overload}"


def find_op(name: str) -> Any:
    """The op overload of a text form; raises KeyError for one that does not exist or that no graph may hold.

    Text may come from anywhere, so it reaches ops that compute from tensors and nothing else: `torch.ops` would load
    libraries, and some ops open files.
    """
    namespace, base, *overload = name.split(".")
    if namespace not in NAMESPACES or len(overload) > 1:
        raise KeyError(name)
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), base), overload[0] if overload else "default")
    except AttributeError as error:
        raise KeyError(name) from error
    if not is_op_overload(found) or not any("Tensor" in str(argument.type) for argument in op_schema(found).arguments):
        raise KeyError(name)
    return found


def is_op(node: Any, name: str) -> bool:
    """Whether ``node`` is a call of the op written as ``name`` (`kvc.rope`)."""
    return isinstance(node, torch.fx.Node) and is_op_overload(node.target) and op_name(node.target) == name


def result_values(node: torch.fx.Node) -> tuple[torch.Tensor, ...]:
    """The fake results of a call: none, one or several."""
    value = node.meta["val"]
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def result(node: torch.fx.Node, index: int) -> torch.fx.Node | None:
    """The getitem node of a multi-output call's result, if anything took it."""
    return next((user for user in node.users if user.target is operator.getitem and user.args[1] == index), None)
