"""`rope` then `quantize_*` becomes `rope_quantize`: the rotated value need not go through memory to be encoded."""

from kvc.compiler_passes.effects import argument, producer
from kvc.compiler_passes.encoded_rows import QUANTIZE, codec_of
from kvc.compiler_passes.infra import GraphPass, Miss, Rewritten
from kvc.compiler_passes.rewrite import Bindings, Call, NearMiss, Rule, Value, WhyNot, apply_rules, nearest_place
from kvc.compiler_passes.stages import Stage
from kvc.graphs.builder import insert_call
from kvc.graphs.graph import Graph, result_values
from kvc.graphs.program import Program


class RopeThenQuantize(Rule):
    """The rotated value serves its other users from the fused op's first result."""

    pattern = Call(
        f"{QUANTIZE}*",
        "quantize",
        {
            "x": Call("kvc.rope", "rope", {"x": Value("x"), "table": Value("table"), "positions": Value("positions")}),
            "scale": Value("scale"),
        },
    )

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """The fused op stands where the rope was, so its scale must be known there."""
        order = {node: index for index, node in enumerate(graph.fx.nodes)}
        scale = found["scale"]
        if scale is not None and order[scale] > order[found["rope"]]:
            return WhyNot(found["quantize"], "the scale is made after the rotation")
        return None

    def replace(self, graph: Graph, found: Bindings) -> None:
        """Put `rope_quantize` in the place of `rope`."""
        rope, quantize = found["rope"], found["quantize"]
        with graph.fx.inserting_before(rope):
            rotated, *planes = insert_call(  # type: ignore[misc]
                graph,
                "kvc.rope_quantize",
                *(found[name] for name in ("x", "table", "positions", "scale")),
                encoding=codec_of(quantize),
                layout=rope.kwargs["layout"],
                source=rope.meta["source"],
            )
        if len(result_values(quantize)) == 1:
            quantize.replace_all_uses_with(planes[0])
        for taken in list(quantize.users):
            taken.replace_all_uses_with(planes[taken.args[1]])
        rope.replace_all_uses_with(rotated)


class QuantizedTwice(NearMiss):
    """A near miss: the rotated value is encoded a second time, another way."""

    pattern = Call(f"{QUANTIZE}*", "quantize", {"x": Call("kvc.rope_quantize", "fused", result=0)})

    def check(self, graph: Graph, found: Bindings) -> WhyNot:
        """One fused op writes one encoding."""
        encoding, scale = found["fused"].kwargs["encoding"], argument(found["fused"], "scale")
        under = f" under scale.{producer(scale)[0].target}" if scale is not None else ""
        return WhyNot(found["quantize"], f"the rotated value is already encoded as {encoding}{under}")


class FuseRopeQuantize(GraphPass):
    """Fuses the encoding of a rotated value into its rotation."""

    name = "fuse_rope_quantize"
    requires = Stage.HOISTED
    ensures = Stage.FUSED
    optional = True
    rules = (RopeThenQuantize(), QuantizedTwice())

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Fuse wherever a rotated value is encoded."""
        return apply_rules(graph, self.rules)

    def nearest(self, program: Program) -> tuple[Miss, ...]:
        """Calls that encode something that is not rotated."""
        return tuple(miss for graph in program.named_graphs().values() for miss in nearest_place(graph, self.rules[:1]))
