"""Chooses the layout of a value between the ops that make and take it, as the target's kernels want it.

V of FP8 context attention: tokens innermost, since both operands of an FP8 product must be contiguous along the summed
axis; `expand_mla` writes it that way for nothing.
"""

from typing import Any

import torch.fx

from kvc.capabilities import layout_wanted
from kvc.compiler_passes.effects import argument, producer
from kvc.compiler_passes.gates import HEAD_DIMS, closed
from kvc.compiler_passes.infra import GraphPass, Miss, Rewritten, miss_at
from kvc.compiler_passes.rewrite import Bindings, WhyNot, describe
from kvc.compiler_passes.stages import Stage
from kvc.graphs.builder import propagate
from kvc.graphs.graph import Graph, is_op, op_name, result
from kvc.graphs.program import Program

Node = torch.fx.Node
ATTENTION, EXPAND = "kvc.mla_context", "kvc.expand_mla"


def fp8_attentions(graph: Graph) -> list[Node]:
    """The attentions whose V is e4m3 and laid out in rows."""
    attentions = (node for node in graph.calls if is_op(node, ATTENTION) and argument(node, "v_scale") is not None)
    return [node for node in attentions if argument(node, "v_layout") == "rows"]


def find_place(attention: Node) -> tuple[Bindings, WhyNot | None]:
    """The call that makes V, and why its layout cannot be changed."""
    v = argument(attention, "v")
    expand, index = producer(v)
    found = {"attention": attention, "expand": expand}
    if not (is_op(expand, EXPAND) and index == 1):
        return found, WhyNot(attention, f"V is {describe(v)}, not a result of {EXPAND}")
    if argument(expand, "v_scale") is None:
        return found, WhyNot(expand, "V is made in the activation dtype and quantized by the attention")
    if len(v.users) > 1:
        other = next(user for user in v.users if user is not attention)
        return found, WhyNot(other, f"V in rows is used by {describe(other)} too")
    return found, _why_not_known(found) or closed((HEAD_DIMS,), found)


def _why_not_known(found: Bindings) -> WhyNot | None:
    """Where a sequence's columns start follows from query_starts, so V cannot be made before they are known."""
    starts = argument(found["attention"], "query_starts")
    if starts.op == "placeholder":
        return None
    return WhyNot(found["attention"], f"query_starts is {describe(starts)}, known after V is made")


def transpose_v(graph: Graph, attention: Node, expand: Node, layout: str) -> None:
    """Let `expand_mla` write V in the layout, and the attention read it."""
    args = list(expand.args)
    args[4] = argument(attention, "query_starts")
    _change(graph, expand, tuple(args), expand.kwargs | {"v_layout": layout})
    _change(graph, attention, attention.args, attention.kwargs | {"v_layout": layout})


def _change(graph: Graph, call: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Give a call other arguments and infer its results again."""
    values = propagate(graph, op_name(call.target), call.target, args, kwargs)
    call.args, call.kwargs = args, kwargs
    call.meta["val"] = values
    for index, value in enumerate(values):
        taken = result(call, index)
        if taken is not None:
            taken.meta["val"] = value


class AssignLayouts(GraphPass):
    """Transposes V where FP8 context attention wants it."""

    name = "assign_layouts"
    requires = Stage.FUSED
    ensures = Stage.FUSED
    optional = True

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Change every V that the target's kernels want in another layout."""
        layout = _wanted(program)
        work, fired, misses = graph.copy(), 0, list[Miss]()
        for attention in fp8_attentions(work) if layout else ():
            found, why = find_place(attention)
            if why is not None:
                misses.append(miss_at(work, why.node, why.reason))
                continue
            transpose_v(work, attention, found["expand"], str(layout))
            fired += 1
        return Rewritten(work if fired else graph, fired, tuple(misses))

    def nearest(self, program: Program) -> tuple[Miss, ...]:
        """Attentions for which no layout is wanted, or whose V is no codes."""
        place = f"{program.device} {program.arch}" if program.arch else program.device
        return tuple(
            miss_at(graph, node, f"no kernel on {place} wants V in another layout" if _is_fp8(node) else "V is not fp8")
            for graph in program.graphs.values()
            for node in graph.calls
            if is_op(node, ATTENTION)
        )


def _wanted(program: Program) -> str | None:
    return layout_wanted(ATTENTION.removeprefix("kvc."), "v", program.device, program.arch)


def _is_fp8(attention: Node) -> bool:
    return argument(attention, "v_scale") is not None
