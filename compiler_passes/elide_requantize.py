"""Leaves the encoding of a value to the op that takes it, so that callers who hold codes need not be asked for more.

First, an attention that gets a query's codes takes the query itself: the op encodes it under the same scale, one launch
less. Then an input all of whose uses are operands that an op would encode may come as codes: the graph is a variant for
both dtypes, which the text, the manifest and `Cache.layer` know as ``accepts``.
"""

from collections.abc import Callable, Iterator

import torch.fx

from kvc.compat import op_schema
from kvc.compiler_passes.effects import argument
from kvc.compiler_passes.gates import ACTIVATION_DTYPE, SCALE, closed
from kvc.compiler_passes.infra import GraphPass, Miss, Rewritten, miss_at
from kvc.compiler_passes.rewrite import Bindings, Call, Rule, Value, WhyNot, apply_rules
from kvc.compiler_passes.stages import Stage
from kvc.encodings import ENCODINGS
from kvc.graphs.graph import Graph, op_name
from kvc.graphs.program import Program
from kvc.graphs.symbols import DTYPE_NAMES

Node = torch.fx.Node
CODEC, CODES = "fp8", "e4m3"  # the codec whose codes are values of a dtype of torch, and their name


def _query(name: str) -> Call:
    quantize = Call(f"kvc.quantize_{CODEC}", "quantize", {"x": Value("x"), "scale": Value("scale")})
    return Call("kvc.mla_context", "attention", {name: quantize})


class _QuantizedQuery(Rule):
    """A part of the query that is encoded before the attention, which would do it too."""

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Whether the attention would make the same codes."""
        found["scales"] = {"q_scale": found["scale"]}
        return closed((ACTIVATION_DTYPE, SCALE), found)

    def replace(self, graph: Graph, found: Bindings) -> None:
        """Let the attention take the value itself."""
        found["attention"].replace_input_with(found["quantize"], found["x"])


class QuantizedNope(_QuantizedQuery):
    """The part without positions."""

    pattern = _query("q_nope")


class QuantizedRope(_QuantizedQuery):
    """The rotated part."""

    pattern = _query("q_rope")


def _stores(field: str) -> Callable[[Node], bool]:
    """A twin encodes the value itself, so it may not be codes of the history."""
    return lambda call: (
        ENCODINGS[str(call.kwargs["encoding"])].codec_of(field) == CODEC and argument(call, "twin") is None
    )


def _quantizes_queries(call: Node) -> bool:
    return argument(call, "q_scale") is not None


# (op, argument) -> whether the call encodes the argument, and takes codes in its place.
ENCODED: dict[tuple[str, str], Callable[[Node], bool]] = {
    ("kvc.append_gqa", "v"): _stores("v"),
    ("kvc.append_mla", "latent"): _stores("latent"),
    ("kvc.mla_context", "q_nope"): _quantizes_queries,
    ("kvc.mla_context", "q_rope"): _quantizes_queries,
}


def uses(value: Node) -> Iterator[tuple[Node, str]]:
    """The calls that take a value, and under which argument; the output under none."""
    for user in value.users:
        if user.op == "output":
            yield user, ""
            continue
        names = (parameter.name for parameter in op_schema(user.target).arguments)
        yield from ((user, name) for name in names if _holds(argument(user, name), value))


def _holds(given: object, value: Node) -> bool:
    return any(item is value for item in given) if isinstance(given, list | tuple) else given is value


def encodes(user: Node, name: str) -> bool:
    """Whether the call would encode this argument."""
    key = ("" if user.op == "output" else op_name(user.target), name)
    return key in ENCODED and ENCODED[key](user)


class ElideRequantize(GraphPass):
    """Marks inputs that may be codes; ``fired`` counts them and the quantizations that went."""

    name = "elide_requantize"
    requires = Stage.FUSED
    ensures = Stage.FUSED
    optional = True
    rules = (QuantizedNope(), QuantizedRope())

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Drop quantizations that the attention repeats, then mark the inputs."""
        elided = apply_rules(graph, self.rules)
        work = elided.graph.copy()
        marked = [node for node in _inputs(work) if _is_variant(node)]
        for node in marked:
            node.meta["accepts"] = (CODES,)
        fired = elided.fired + len(marked)
        counts = {"elided": elided.fired, "taking codes": len(marked)}
        notes = tuple(note for node in _inputs(work) for note in _needed_as_values(graph, node))
        return Rewritten(work if fired else graph, fired, elided.misses, notes, counts)

    def nearest(self, program: Program) -> tuple[Miss, ...]:
        """Inputs that no op would encode."""
        return tuple(
            miss_at(graph, user, f"takes input.{node.target} as {DTYPE_NAMES[node.meta['val'].dtype]}")
            for graph in program.graphs.values()
            for node in _inputs(graph)
            for user, name in uses(node)
            if not encodes(user, name)
        )


def _inputs(graph: Graph) -> list[Node]:
    return [node for node in graph.placeholders if node.meta["role"] == "input"]


def _is_variant(node: Node) -> bool:
    taken = [encodes(user, name) for user, name in uses(node)]
    return bool(taken) and all(taken) and "accepts" not in node.meta


def _needed_as_values(graph: Graph, node: Node) -> Iterator[str]:
    """A remark where an input is encoded here and needed as it is there."""
    others = [user for user, name in uses(node) if not encodes(user, name)]
    if any(encodes(user, name) for user, name in uses(node)) and others:
        names = " and ".join("the output" if user.op == "output" else op_name(user.target) for user in others)
        yield f"{graph.name}: {names} needs input.{node.target} as values, so it may not be codes"
