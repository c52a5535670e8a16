"""One encoding, one page size and one scale operand a field for all who write and read a pool, in every phase.

A call may reach into two pools, a history and its twin; it says apart how the rows of each are stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.fx

from kvc.compiler_passes.effects import accesses, argument, takes
from kvc.compiler_passes.encoded_rows import codec_made_by, is_joined, plane_makers, stored_as
from kvc.graphs.graph import Graph, is_op, qualified_name
from kvc.graphs.program import PHASES, Program, part_of, signature_of

Node = torch.fx.Node


@dataclass(frozen=True)
class Storage:
    """How a call writes or reads rows.

    ``encodings``: those it may mean, more than one for planes of a codec that several encodings share, none for planes
    that nothing encodes; ``scales``: names in the order of the fields.
    """

    encodings: frozenset[str]
    tokens_per_page: int | None
    scales: tuple[str, ...]


def storage_of(call: Node, pool: Node) -> Storage:
    """What a call that accesses a pool says about the rows in it."""
    tokens: Any = call.kwargs.get("tokens_per_page")
    planes = argument(call, "planes")
    if planes is not None:
        return _of_planes(planes, tokens)
    beside = argument(call, "twin") is pool and takes(call, "pool")
    encoding = call.kwargs.get("twin_encoding" if beside else "encoding")
    encodings = frozenset({str(encoding)} if encoding is not None else ())
    return Storage(encodings, tokens, tuple(map(_scale_name, _scales_of(call, beside))))


def _scales_of(call: Node, beside: bool) -> Sequence[Node | None]:
    """The scales of a row's fields in a pool, or in the twin ``beside`` it."""
    name = "scales" if takes(call, "scales") and not beside else "twin_scales"
    if takes(call, name):
        return argument(call, name)  # type: ignore[no-any-return]
    if is_op(call, "kvc.index_topk"):  # no encoding of a key has a scale operand
        return [None]
    fields = ("latent", "rope") if takes(call, "latent_scale") else ("k", "v")
    return [argument(call, f"{field}_twin_scale" if beside else f"{field}_scale") for field in fields]


def _of_planes(planes: Any, tokens: int | None) -> Storage:
    """A store writes planes; how they are encoded is known from the calls that make them."""
    makers = plane_makers(planes)
    encodings = stored_as(tuple(map(codec_made_by, makers)), joined=is_joined(planes))
    scales = (argument(maker, "scale") if maker.op == "call_function" else None for maker in makers)
    return Storage(encodings, tokens, tuple(map(_scale_name, scales)))


def _scale_name(scale: Node | None) -> str:
    if scale is None:
        return "no scale"
    return qualified_name(scale) if scale.op == "placeholder" else scale.name


def scale_conflicts(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Calls that disagree with an earlier access of the same pool."""
    first: dict[str, Storage] = {}
    for node, kind, pool, now in _accesses(graph):
        conflict = _conflict(first.setdefault(pool, now), now)
        if conflict:
            yield node, f"{kind}s {pool} {conflict}"
        else:
            first[pool] = _narrowed(first[pool], now)


def phase_conflicts(program: Program) -> Iterator[tuple[str, str]]:
    """Graphs of a signature that disagree with an earlier one about the rows of a pool: all use the same pages."""
    for signature in dict.fromkeys(signature_of(name) for name, _ in program.graphs):
        first: dict[str, tuple[str, Storage]] = {}
        graphs = {key: graph for key, graph in program.graphs.items() if signature_of(key[0]) == signature}
        for (name, phase), graph in sorted(graphs.items(), key=lambda item: PHASES.index(item[0][1])):
            now = {pool: (_where(name, phase), stored) for pool, stored in _pools_of(graph).items()}
            for pool, (_, stored) in now.items():
                where, other = first.get(pool, now[pool])
                conflict = _conflict(other, stored)
                if conflict:
                    yield f"{name}.{phase}", f"uses {pool} {conflict} in {where}"
            first = now | first


def _where(name: str, phase: str) -> str:
    """What tells a graph from the others of its signature."""
    return ".".join(filter(None, (part_of(name), phase)))


def _pools_of(graph: Graph) -> dict[str, Storage]:
    """Pool -> how its rows are stored, by the accesses of a graph that `scale_conflicts` finds no fault with."""
    pools: dict[str, Storage] = {}
    for _, _, pool, now in _accesses(graph):
        pools[pool] = _narrowed(pools.get(pool, now), now)
    return pools


def _accesses(graph: Graph) -> Iterator[tuple[Node, str, str, Storage]]:
    for node in graph.calls:
        for pool, kind in accesses(node):
            if pool.meta.get("role") == "staging":  # dense rows in the activation dtype, of any engine
                continue
            yield node, kind, qualified_name(pool), storage_of(node, pool)


def _narrowed(first: Storage, now: Storage) -> Storage:
    return replace(first, encodings=first.encodings & now.encodings)


def _conflict(first: Storage, now: Storage) -> str:
    if not first.encodings & now.encodings:
        return f"as {_text(now.encodings)}; it is stored as {_text(first.encodings)}"
    if now.tokens_per_page != first.tokens_per_page:
        return f"in pages of {now.tokens_per_page} tokens; it is stored in pages of {first.tokens_per_page}"
    if now.scales != first.scales:
        return f"under {', '.join(now.scales)}; it is stored under {', '.join(first.scales)}"
    return ""


def _text(encodings: frozenset[str]) -> str:
    return " or ".join(sorted(encodings)) or "planes of no one encoding"
