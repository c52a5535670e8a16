"""Codes: what may take the place of values, and the scale operand that says what they mean."""

from collections.abc import Iterator

import torch
import torch.fx

from kvc.compiler_passes.effects import argument, operands, producer, takes
from kvc.compiler_passes.rewrite import describe
from kvc.diagnostics import KvcError
from kvc.graphs.builder import propagate
from kvc.graphs.graph import Graph, is_op, op_name

Node = torch.fx.Node

# Operand of attention that may hold codes -> the scale operand that it is read under.
READ_UNDER = {"q_nope": "q_scale", "q_rope": "q_scale", "k": "k_scale", "v": "v_scale"}
_TAKES_CODES = {
    "kvc.mla_context": READ_UNDER,
    "kvc.mla_sparse": {"latent": "row_scale", "rope": "row_scale"},
    "kvc.overlay_retained_rows": {"rows": "code_scale"},
    "kvc.place_own_rows": {"rows": "code_scale"},
}
# Result of `expand_mla` -> the scale operand that it is encoded under.
_EXPANDED_UNDER = ("k_scale", "v_scale")


def codes_read_otherwise(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Calls whose operands are codes made under another scale operand than they are read under."""
    for node in graph.calls:
        for name, scale in _TAKES_CODES.get(op_name(node.target), {}).items():
            read = argument(node, scale)
            for made in dict.fromkeys(map(_made_under, operands(argument(node, name)))):
                if made is not None and made is not read:
                    yield node, f"reads {name} under {describe(read)}; it is encoded under {describe(made)}"


def _made_under(value: Node) -> Node | None:
    """The scale operand of the call that made codes; None for values, and for codes that the caller made."""
    call, index = producer(value)
    if value.meta["val"].dtype != torch.uint8 or call.op == "placeholder":
        return None
    if is_op(call, "kvc.expand_mla"):
        return argument(call, _EXPANDED_UNDER[index])  # type: ignore[no-any-return]
    name = next((name for name in ("scale", "code_scale") if takes(call, name)), None)
    return argument(call, name) if name else None


def inputs_taken_otherwise(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Inputs that are said to take codes, and a call that does not, or whose results would be others."""
    accepting = [node for node in graph.placeholders if node.meta.get("accepts")]
    # Not empty_like: on the meta device that imports sympy, a second where `kvc compile` has five.
    codes = {node: torch.empty(node.meta["val"].shape, dtype=torch.uint8, device="meta") for node in accepting}
    for user in dict.fromkeys(user for node in accepting for user in node.users if user.op == "call_function"):
        try:
            made = propagate(graph, op_name(user.target), user.target, user.args, user.kwargs, codes)
        except KvcError as error:
            yield user, f"an input may hold codes: {error.diagnostics[0].message}"
            continue
        if _dtypes(made) != _dtypes(user.meta["val"]):
            yield user, "an input may hold codes: the results would be of another dtype"


def _dtypes(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_dtypes(item) for item in value]
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else value
