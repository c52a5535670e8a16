"""A gather, then attention over the gathered rows, becomes attention that reads the pages itself: no scratch.

With one pool or with a history and its twin. Rows must have been gathered in fp32, as paged attention reads them; a
gather that rounds to another dtype would give other bits.
"""

from typing import Any

import torch
import torch.fx

from kvc.compat import op_schema
from kvc.compiler_passes.effects import argument, operands
from kvc.compiler_passes.fold_overlay import GATHER, MIXED
from kvc.compiler_passes.gathers import differing, gathering_call, put_in_place, written_between
from kvc.compiler_passes.infra import GraphPass, Miss, Rewritten, miss_at
from kvc.compiler_passes.rewrite import Bindings, Call, NearMiss, Rule, WhyNot, apply_rules
from kvc.compiler_passes.stages import Stage
from kvc.graphs.graph import Graph, op_name
from kvc.graphs.program import Program
from kvc.graphs.symbols import DTYPE_NAMES

Node = torch.fx.Node
_GATHERED = "_gathered"
_HOW = ("encoding", "twin_encoding", "first", "last", "unit")  # attributes of a gather that attention has too
# What says how far rows are read: by the attention and by the gather.
_PAGES = (("page_table", "page_table"), ("tokens_per_page", "tokens_per_page"))
_LENGTHS = {"generation": (("lengths", "lengths"),), "context": (("committed", "lengths"),)}


class GatherThenAttend(Rule):
    """Anchored at the attention."""

    pattern = Call(f"kvc.*{_GATHERED}", "attention")

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Find the gather whose rows the attention takes, alone, in fp32 and of the same sequences."""
        attention = found["attention"]
        gather = gathering_call(attention, list(operands(argument(attention, "rows"))), (GATHER, MIXED))
        if isinstance(gather, WhyNot):
            return gather
        found["gather"] = gather
        if gather.kwargs["dtype"] != torch.float32:
            name = DTYPE_NAMES[gather.kwargs["dtype"]]  # type: ignore[index]
            return WhyNot(gather, f"rows are gathered as {name}; attention that reads pages does not round them")
        lengths = _LENGTHS["context" if argument(attention, "query_starts") is not None else "generation"]
        same = differing(attention, gather, (*_PAGES, *lengths))
        return same or self._other_committed(found) or written_between(graph, gather, attention)

    def _other_committed(self, found: Bindings) -> WhyNot | None:
        """In the context phase retained rows are told from the committed length that is attended to."""
        if argument(found["attention"], "committed") is None or argument(found["gather"], "committed") is None:
            return None
        return differing(found["attention"], found["gather"], (("committed", "committed"),))

    def replace(self, graph: Graph, found: Bindings) -> None:
        """Let the attention read what the gather read."""
        attention, gather = found["attention"], found["gather"]
        target = op_name(attention.target).removesuffix(_GATHERED)
        put_in_place(graph, attention, target, _reads(gather) | _operands(attention) | dict(attention.kwargs))


def _reads(gather: Node) -> dict[str, Any]:
    """What a gather reads, under the names that attention has for it."""
    how = dict(gather.kwargs)
    names = [str(name) for name in how["fields"]]  # type: ignore[union-attr]
    values = {name: argument(gather, name) for name in ("pool", "page_table", "twin", "twin_table", "committed")}
    values |= {f"{name}_scale": scale for name, scale in zip(names, argument(gather, "scales"), strict=True)}
    twins = argument(gather, "twin_scales") or [None] * len(names)
    values |= {f"{name}_twin_scale": scale for name, scale in zip(names, twins, strict=True)}
    heads, dims = how["heads"], how["dims"]
    sizes = {"kv_heads": heads[0], "v_head_dim": dims[-1]}  # type: ignore[index]
    return values | sizes | {name: how[name] for name in _HOW if name in how}


def _operands(attention: Node) -> dict[str, Any]:
    """Operands of the attention by name, but for the rows."""
    names = [one.name for one in op_schema(attention.target).arguments if not one.kwarg_only]
    return {name: argument(attention, name) for name in names if name != "rows"}


class SparseAttention(NearMiss):
    """A near miss: attention over selected rows reads them from scratch."""

    pattern = Call("kvc.mla_sparse", "attention")

    def check(self, graph: Graph, found: Bindings) -> WhyNot:
        """Closed for every sparse attention."""
        return WhyNot(found["attention"], "gate sparse: kvc.mla_sparse attends to rows of a scratch, not to pages")


class FoldGatherIntoAttention(GraphPass):
    """Folds gathers into the attention that takes their rows."""

    name = "fold_gather_into_attention"
    requires = Stage.HOISTED
    ensures = Stage.FUSED
    optional = True
    rules = (GatherThenAttend(), SparseAttention())

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Fold wherever attention takes gathered rows."""
        return apply_rules(graph, self.rules)

    def nearest(self, program: Program) -> tuple[Miss, ...]:
        """Attention that reads pages already."""
        return tuple(
            miss_at(graph, node, "nothing is gathered: attention reads the pages already")
            for graph in program.graphs.values()
            for node in graph.calls
            if argument(node, "page_table") is not None and argument(node, "pool") is not None
        )[:1]
