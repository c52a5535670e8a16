"""`gather_rows`, then `overlay_retained_rows`, becomes `gather_mixed_rows`: each row is read from one pool, once."""

from kvc.compiler_passes.effects import argument, operands
from kvc.compiler_passes.gathers import differing, gathering_call, put_in_place, written_between
from kvc.compiler_passes.infra import GraphPass, Miss, Rewritten, miss_at
from kvc.compiler_passes.rewrite import Bindings, Call, Rule, WhyNot, apply_rules
from kvc.compiler_passes.stages import Stage
from kvc.graphs.graph import Graph, is_op
from kvc.graphs.program import Program

GATHER, OVERLAY, MIXED = "kvc.gather_rows", "kvc.overlay_retained_rows", "kvc.gather_mixed_rows"
# What both must say alike: sequences and rows, and in which form they are gathered.
_SAME = ("lengths", "fields", "tokens_per_page", "selected", "sequence_ids", "code_scale")


class GatherThenOverlay(Rule):
    """Anchored at the overlay."""

    pattern = Call(OVERLAY, "overlay")

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Find the gather whose rows the overlay takes, alone, and that reads the same sequences."""
        overlay = found["overlay"]
        gather = gathering_call(overlay, list(operands(argument(overlay, "rows"))), (GATHER,))
        if isinstance(gather, WhyNot):
            return gather
        found["gather"] = gather
        same = differing(overlay, gather, [(name, name) for name in _SAME])
        return same or written_between(graph, gather, overlay)

    def replace(self, graph: Graph, found: Bindings) -> None:
        """Put the mixed gather in the place of the overlay."""
        overlay, gather = found["overlay"], found["gather"]
        names = ("pool", "page_table", "lengths", "scales", *_SAME[3:])
        values = {name: argument(gather, name) for name in names} | dict(gather.kwargs)
        values |= {name: argument(overlay, name) for name in ("twin", "twin_table", "committed", "twin_scales")}
        values |= {name: overlay.kwargs[name] for name in ("first", "last", "unit")}
        put_in_place(graph, overlay, MIXED, values | {"twin_encoding": overlay.kwargs["encoding"]})


class FoldOverlay(GraphPass):
    """Folds the overlay of retained rows into the gather of all."""

    name = "fold_overlay"
    requires = Stage.HOISTED
    ensures = Stage.FUSED
    optional = True
    rules = (GatherThenOverlay(),)

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Fold wherever gathered rows are overlaid."""
        return apply_rules(graph, self.rules)

    def nearest(self, program: Program) -> tuple[Miss, ...]:
        """Reads of layers without a twin: there is nothing to overlay."""
        return tuple(
            miss_at(graph, node, "no rows are overlaid: the layer has no twin")
            for graph in program.graphs.values()
            for node in graph.calls
            if argument(node, "page_table") is not None and not is_op(node, OVERLAY)
        )[:1]
