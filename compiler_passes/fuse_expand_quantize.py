"""`expand_mla`, then `quantize_fp8` of K and of V, becomes one op: the expanded values are written once, as codes.

The op rounds to the activation dtype before it encodes, as the two did.
"""

import torch.fx

from kvc.compiler_passes.effects import argument
from kvc.compiler_passes.gates import ACTIVATION_DTYPE, CP, FP8_CACHE, HEAD_DIMS, SCALE, SPARSE, closed
from kvc.compiler_passes.infra import GraphPass, Miss, Rewritten, miss_at
from kvc.compiler_passes.rewrite import Bindings, Call, NearMiss, Rule, WhyNot, apply_rules, describe
from kvc.compiler_passes.stages import Stage
from kvc.graphs.builder import insert_call
from kvc.graphs.graph import Graph, is_op, result
from kvc.graphs.program import Program

Node = torch.fx.Node
QUANTIZE = "kvc.quantize_fp8"
GATES = (SPARSE, FP8_CACHE, ACTIVATION_DTYPE, HEAD_DIMS, SCALE, CP)


class ExpandThenQuantize(Rule):
    """Anchored at the quantization of K; the check finds that of V and the attention that takes both."""

    pattern = Call(QUANTIZE, "quantize_k", {"x": Call("kvc.expand_mla", "expand")})

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Find V's quantization and the attention, or say what is in the way."""
        expand, quantize_k = found["expand"], found["quantize_k"]
        v_users = list(_users(expand, 1))
        if len(v_users) != 1 or not is_op(v_users[0], QUANTIZE):
            return WhyNot(expand, f"K is quantized, V goes to {_names(v_users)}")
        for name, index in (("K", 0), ("V", 1)):
            if len(_users(expand, index)) > 1:
                return WhyNot(expand, f"{name} is needed unquantized too: it goes to {_names(_users(expand, index))}")
        found["quantize_v"] = quantize_v = v_users[0]
        takers = list(dict.fromkeys((*quantize_k.users, *quantize_v.users)))
        if len(takers) != 1:
            return WhyNot(quantize_k, f"the codes of K and V go to {_names(takers)}, not to one attention")
        found["attention"], found["x"] = takers[0], argument(expand, "latent")
        found["scales"] = {"k_scale": argument(quantize_k, "scale"), "v_scale": argument(quantize_v, "scale")}
        return closed(GATES, found)

    def replace(self, graph: Graph, found: Bindings) -> None:
        """Give the scales to `expand_mla` itself."""
        expand = found["expand"]
        with graph.fx.inserting_before(expand):
            k, v = insert_call(  # type: ignore[misc]
                graph,
                "kvc.expand_mla",
                *expand.args[:5],
                *found["scales"].values(),
                source=expand.meta["source"],
                **expand.kwargs,
            )
        found["quantize_k"].replace_all_uses_with(k)
        found["quantize_v"].replace_all_uses_with(v)


class VAlone(NearMiss):
    """A near miss: V is quantized and K is not."""

    pattern = Call(QUANTIZE, "quantize", {"x": Call("kvc.expand_mla", "expand", result=1)})

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Silent where K is quantized too: then the rule above says what is to be said."""
        users = _users(found["expand"], 0)
        if any(is_op(user, QUANTIZE) for user in users):
            return None
        return WhyNot(found["quantize"], f"V is quantized, K goes to {_names(users)}")


def _users(call: Node, index: int) -> tuple[Node, ...]:
    taken = result(call, index)
    return tuple(taken.users) if taken is not None else ()


def _names(nodes: object) -> str:
    return " and ".join(describe(node) for node in nodes) or "nobody"  # type: ignore[attr-defined]


class FuseExpandQuantize(GraphPass):
    """Fuses the encoding of expanded K and V into their expansion."""

    name = "fuse_expand_quantize"
    requires = Stage.HOISTED
    ensures = Stage.FUSED
    optional = True
    rules = (ExpandThenQuantize(), VAlone())

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Fuse wherever expanded K and V are quantized."""
        return apply_rules(graph, self.rules)

    def nearest(self, program: Program) -> tuple[Miss, ...]:
        """Expansions whose K and V nobody quantizes."""
        return tuple(
            miss_at(graph, node, f"K goes to {_names(_users(node, 0))} as it is: nothing quantizes it")
            for graph in program.graphs.values()
            for node in graph.calls
            if is_op(node, "kvc.expand_mla")
        )
