"""One encoding, one page size and one scale operand a field for all who write and read a pool."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.fx

from kvc.compiler_passes.effects import accesses, argument, producer
from kvc.graphs.graph import Graph, op_name, qualified_name

Node = torch.fx.Node


@dataclass(frozen=True)
class Storage:
    """How a call writes or reads rows: None where it does not say; ``scales`` in the order of the fields."""

    encoding: str | None
    tokens_per_page: int | None
    scales: tuple[Node | None, ...]


def storage_of(call: Node) -> Storage:
    """What a call that accesses a pool says about the rows in it."""
    encoding, tokens = call.kwargs.get("encoding"), call.kwargs.get("tokens_per_page")
    planes = argument(call, "planes")
    if planes is not None:
        return _of_planes(planes, tokens)
    gathered = argument(call, "scales")
    scales = tuple(gathered) if gathered is not None else (argument(call, "k_scale"), argument(call, "v_scale"))
    return Storage(encoding, tokens, scales)  # type: ignore[arg-type]


def _of_planes(planes: Any, tokens: Any) -> Storage:
    """A store writes planes; how they are encoded is known from the calls that make them."""
    makers = list(dict.fromkeys(producer(plane)[0] for plane in planes))
    encodings = {_encoding_of(maker) for maker in makers}
    encoding = encodings.pop() if len(encodings) == 1 else "/".join(sorted(map(str, encodings)))
    return Storage(encoding, tokens, tuple(_scale_of(maker) for maker in makers))


def _encoding_of(maker: Node) -> str | None:
    if maker.op != "call_function":
        return None
    fused = maker.kwargs.get("encoding")
    return str(fused) if fused else op_name(maker.target).removeprefix("kvc.quantize_")


def _scale_of(maker: Node) -> Node | None:
    return argument(maker, "scale") if maker.op == "call_function" else None


def scale_conflicts(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Calls that disagree with an earlier access of the same pool."""
    first: dict[Node, Storage] = {}
    for node in graph.calls:
        for pool, kind in accesses(node):
            now = storage_of(node)
            conflict = _conflict(first.setdefault(pool, now), now)
            if conflict:
                yield node, f"{kind}s {qualified_name(pool)} {conflict}"


def _conflict(first: Storage, now: Storage) -> str:
    if now.encoding != first.encoding:
        return f"as {now.encoding}; it is stored as {first.encoding}"
    if now.tokens_per_page != first.tokens_per_page:
        return f"in pages of {now.tokens_per_page} tokens; it is stored in pages of {first.tokens_per_page}"
    if now.scales != first.scales:
        return f"under {_names(now.scales)}; it is stored under {_names(first.scales)}"
    return ""


def _names(scales: tuple[Node | None, ...]) -> str:
    return ", ".join("no scale" if scale is None else qualified_name(scale) for scale in scales) or "no scale"
