"""The gates of FP8 context attention: named checks on the nodes of the place, never on a spec's value.

A gate that is closed is a miss of the pass that asks it, with the gate's name and its reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch.fx

from kvc.capabilities import FP8_CONTEXT
from kvc.compiler_passes.effects import argument
from kvc.compiler_passes.rewrite import Bindings, WhyNot, describe
from kvc.graphs.graph import is_op, result, result_values
from kvc.graphs.symbols import DTYPE_NAMES

Node = torch.fx.Node


@dataclass(frozen=True)
class Gate:
    """``why_not`` reads what a rule found at a place: the `attention`, `expand` that makes its K and V, and so on."""

    name: str
    why_not: Callable[[Bindings], WhyNot | None]


def closed(gates: Sequence[Gate], found: Bindings) -> WhyNot | None:
    """The first gate that is closed."""
    refused = ((gate, gate.why_not(found)) for gate in gates)
    return next((WhyNot(why.node, f"gate {gate.name}: {why.reason}") for gate, why in refused if why), None)


def _sparse(found: Bindings) -> WhyNot | None:
    """Sparse attention reads rows of a scratch: there is no dense K and V."""
    attention = found["attention"]
    if is_op(attention, "kvc.mla_context"):
        return None
    return WhyNot(attention, f"K and V go to {describe(attention)}, not to kvc.mla_context")


def _fp8_cache(found: Bindings) -> WhyNot | None:
    """Cached rows are expanded and quantized like the own ones."""
    stored = found["attention"].kwargs["encoding"]
    if stored in FP8_CONTEXT.encodings:
        return None
    return WhyNot(found["attention"], f"the cache is stored as {stored}, not as {' or '.join(FP8_CONTEXT.encodings)}")


def _activation_dtype(found: Bindings) -> WhyNot | None:
    """The dtype of the tensor that is quantized, and of the weights, which says what values are rounded to before."""
    given, activation = (value.meta["val"].dtype for value in (found["x"], argument(found["attention"], "w_uk")))
    name = DTYPE_NAMES[given]
    if name not in FP8_CONTEXT.dtypes:
        return WhyNot(found["attention"], f"activations are {name}, not {' or '.join(FP8_CONTEXT.dtypes)}")
    if given != activation:
        return WhyNot(found["attention"], f"the value is {name}, the weights are {DTYPE_NAMES[activation]}")
    return None


def _head_dims(found: Bindings) -> WhyNot | None:
    for name, value in zip(("K", "V"), result_values(found["expand"]), strict=True):
        width = value.shape[2]
        if width % FP8_CONTEXT.multiple:
            return WhyNot(found["expand"], f"{name} has {width} values a head, no multiple of {FP8_CONTEXT.multiple}")
    return None


def _scale(found: Bindings) -> WhyNot | None:
    """One operand encodes a value and decodes it; `scales`: argument of the attention -> scale of the encoding."""
    attention = found["attention"]
    for name, scale in found["scales"].items():
        read = argument(attention, name)
        if not isinstance(scale, Node) or scale.op != "placeholder":
            return WhyNot(attention, f"{name}: the scale is {describe(scale)}, which no layer is bound to")
        if read is not scale:
            return WhyNot(attention, f"{name}: encoded under {describe(scale)}, read under {describe(read)}")
    return None


def _cp(found: Bindings) -> WhyNot | None:
    """Context parallelism: partial results of ranks are merged by their log-sum-exp."""
    lse = result(found["attention"], 1)
    if lse is None or not lse.users:
        return None
    return WhyNot(
        found["attention"], f"its lse is used by {describe(next(iter(lse.users)))}: ranks merge partial results"
    )


SPARSE = Gate("sparse", _sparse)
FP8_CACHE = Gate("fp8 cache", _fp8_cache)
ACTIVATION_DTYPE = Gate("activation dtype", _activation_dtype)
HEAD_DIMS = Gate("head dims", _head_dims)
SCALE = Gate("scale", _scale)
CP = Gate("cp", _cp)
