"""RoPE, encoding and the store of a step's rows become one op: one launch instead of four.

`append_gqa` rotates q and k and stores k and v, `append_mla` rotates the rope parts of q and of the row and stores
latent and rope. A layer without RoPE has nothing to rotate: its two encodings and the store fuse alone. The store of
the same rows in a twin goes into the same op.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch.fx

from kvc.compiler_passes.effects import accesses, argument, is_call, producer, takes
from kvc.compiler_passes.encoded_rows import EncodedField, encoded_field, is_joined, parts_of_planes, stored_as
from kvc.compiler_passes.encoded_rows import plane_makers as makers_of
from kvc.compiler_passes.infra import GraphPass, Rewritten
from kvc.compiler_passes.rewrite import Bindings, Call, Rule, Value, WhyNot, apply_rules, describe
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.twin_store import find_twin_store, take_twin_store
from kvc.encodings import ENCODINGS
from kvc.graphs.builder import insert_call
from kvc.graphs.graph import Graph, is_op, result
from kvc.graphs.program import Program
from kvc.ops.codecs import KV, MLA

Node = torch.fx.Node


@dataclass(frozen=True)
class RowKind:
    """One kind of rows.

    ``append`` is the op that stores them, ``fields`` their names, ``rotated`` the index of the one with positions in
    it, ``query`` the argument of attention that is rotated with it.
    """

    append: str
    fields: tuple[str, str]
    labels: tuple[str, str]
    rotated: int
    query: str


_SINGLE_FIELD = "an index key is a single field, stored as it is"

GQA = RowKind("kvc.append_gqa", KV, ("K", "V"), 0, "q")
LATENT = RowKind("kvc.append_mla", MLA, ("the latent", "the rope"), 1, "q_rope")


class StoreOfEncodedRows(Rule):
    """Anchored at the store. The check walks from there to the encodings, to the rotations and to the attention."""

    pattern = Call("kvc.store_rows", "store", {"pool": Value("pool"), "rows": Value("rows")})

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Find the two fields and the query, or say what is in the way."""
        readers = [call for call in graph.calls if (found["pool"], "read") in accesses(call)]
        if any(takes(reader, "index_q") for reader in readers):
            return WhyNot(found["store"], _SINGLE_FIELD)
        found["kind"] = _kind(readers)
        return (
            self._find_fields(graph, found, readers)
            or self._find_query(graph, found, readers)
            or find_twin_store(graph, found, _plain_values(found))
        )

    def _find_fields(self, graph: Graph, found: Bindings, readers: list[Node]) -> WhyNot | None:
        """Bind ``fields``, the calls that encode, and ``encoding``."""
        store, kind = found["store"], found["kind"]
        makers = makers_of(argument(store, "planes"))
        fields = [encoded_field(call) for call in makers]
        for call, field in zip(makers, fields, strict=True):
            if field is None:
                return WhyNot(store, f"a stored plane comes from {describe(call)}, which does not encode")
        if len(fields) != 2:
            return WhyNot(store, self._field_count(graph, kind, len(fields)))
        found["fields"] = fields
        return self._find_encoding(found, readers) or self._why_not_pair(found)

    def _field_count(self, graph: Graph, kind: RowKind, count: int) -> str:
        stores, labels = sum(is_op(call, "kvc.store_rows") for call in graph.calls), " and ".join(kind.labels)
        if count == 1 and stores > 1:
            return f"{labels} are stored by different stores, {stores} in this graph"
        return f"the number of encoded fields stored here is {count}, not 2 ({labels})"

    def _find_encoding(self, found: Bindings, readers: list[Node]) -> WhyNot | None:
        """Bind the encoding that the planes may be in and that who reads them names."""
        store, (first, second) = found["store"], found["fields"]
        candidates = stored_as((first.codec, second.codec), is_joined(argument(store, "planes")))
        named = {str(reader.kwargs["encoding"]) for reader in readers} or candidates
        fitting = sorted(candidates & named)
        if len(fitting) == 1:
            found["encoding"] = fitting[0]
            return None
        if not candidates:
            labels = found["kind"].labels
            return WhyNot(store, f"{labels[0]} is encoded as {first.codec}, {labels[1]} as {second.codec}")
        return WhyNot(store, f"the planes may be {' or '.join(sorted(candidates))}; read as {', '.join(sorted(named))}")

    def _why_not_pair(self, found: Bindings) -> WhyNot | None:
        store, kind, fields = found["store"], found["kind"], found["fields"]
        still = 1 - kind.rotated
        if is_op(fields[still].call, "kvc.rope_quantize"):
            place = ("first", "second")[still]
            return WhyNot(fields[still].call, f"the {place} stored field, {kind.labels[still]}, is rotated")
        planes = argument(store, "planes")
        order = ENCODINGS[found["encoding"]].planes_of(kind.fields)
        if parts_of_planes(planes) != [[fields[field].planes[part] for field, part in parts] for parts in order]:
            return WhyNot(store, f"the planes are not in the order {', '.join(kind.labels)} of each part")
        return self._why_not_alone(planes, store)

    def _why_not_alone(self, planes: list[Node], store: Node) -> WhyNot | None:
        for plane, parts in zip(planes, parts_of_planes(planes), strict=True):
            for value, taker in ((plane, store), *((part, plane) for part in parts if part is not plane)):
                other = next((user for user in value.users if user is not taker), None)
                if other is not None:
                    return WhyNot(other, f"an encoded plane is used by {describe(other)} too")
        return None

    def _find_query(self, graph: Graph, found: Bindings, readers: list[Node]) -> WhyNot | None:
        """Bind ``rope``, the rotation of q under the table and positions of the row's; None where that is not rotated.

        A query that is quantized too is rotated by `rope_quantize`; its encoding then stays behind.
        """
        kind: RowKind = found["kind"]
        row, label = found["fields"][kind.rotated].call, kind.labels[kind.rotated]
        found["rope"] = None
        if not is_op(row, "kvc.rope_quantize"):
            rotation = producer(argument(row, "x"))[0]
            return WhyNot(rotation, f"{label} is rotated by an op of its own") if _rotates(rotation) else None
        queries = list(dict.fromkeys(argument(call, kind.query) for call in _attentions(readers, kind.query)))
        if len(queries) != 1:
            return WhyNot(found["store"], f"{len(queries)} queries attend to the pool, not one")
        rope = producer(queries[0])[0]
        if not _rotates(rope):
            return WhyNot(row, f"{label} is rotated, but {kind.query} is {describe(queries[0])}")
        found["rope"] = rope
        return self._why_not_same_rotation(rope, row) or self._why_not_movable(graph, found)

    def _why_not_same_rotation(self, rope: Node, row: Node) -> WhyNot | None:
        for name in ("positions", "table", "layout"):
            q_value, k_value = argument(rope, name), argument(row, name)
            if q_value is not k_value and q_value != k_value:
                return WhyNot(rope, f"{name} of q and k differ: {describe(q_value)} and {describe(k_value)}")
        return None

    def _why_not_movable(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """The fused op stands where the store was: q must be known there and no rotated value needed before."""
        order = {node: index for index, node in enumerate(graph.fx.nodes)}
        store, rope = found["store"], found["rope"]
        if order[producer(argument(rope, "x"))[0]] > order[store]:
            return WhyNot(rope, "q is made after the store")
        rotated_row = result(found["fields"][found["kind"].rotated].call, 0)
        for user in (*_takers(rope), *_users(rotated_row)):
            if order[user] < order[store]:
                return WhyNot(user, "a rotated value is used before the store")
        return None

    def replace(self, graph: Graph, found: Bindings) -> None:
        """Put the fused op in the place of the store."""
        store, rope, kind = found["store"], found["rope"], found["kind"]
        row = found["fields"][kind.rotated].call
        rotated_row = result(row, 0) if rope else None
        twin = take_twin_store(graph, found)
        with graph.fx.inserting_before(store):
            q_out, k_out = insert_call(  # type: ignore[misc]
                graph,
                kind.append,
                *self._operands(found),
                *twin.operands,
                encoding=found["encoding"],
                keep_k=bool(_users(rotated_row)),
                layout=argument(rope, "layout") if rope else None,
                tokens_per_page=store.kwargs["tokens_per_page"],
                source=store.meta["source"],
                **twin.attributes,
            )
            if rope:
                _replace_rotation(graph, rope, q_out)
        if rotated_row:
            rotated_row.replace_all_uses_with(k_out)
        graph.fx.erase_node(store)

    def _operands(self, found: Bindings) -> tuple[Any, ...]:
        rope, fields = found["rope"], [field.call for field in found["fields"]]
        rotation = (argument(rope, "table"), argument(rope, "positions")) if rope else (None, None)
        query = argument(rope, "x") if rope else None
        values, scales = ([argument(call, name) for call in fields] for name in ("x", "scale"))
        return (found["pool"], query, *values, *rotation, found["rows"], *scales)


def _kind(readers: list[Node]) -> RowKind:
    """What rows a pool holds, by what its readers call their fields."""
    latent = (takes(reader, "latent_scale") or MLA[0] in reader.kwargs.get("fields", ()) for reader in readers)  # type: ignore[operator]
    return LATENT if any(latent) else GQA


def _attentions(readers: list[Node], query: str) -> Iterator[Node]:
    """Calls with a query that read a pool, or take what was gathered of it."""
    waiting, seen = list(readers), set[Node]()
    while waiting:
        call = waiting.pop(0)
        if call in seen:
            continue
        seen.add(call)
        if is_call(call) and takes(call, query):
            yield call
        else:
            waiting += list(call.users)


def _plain_values(found: Bindings) -> list[Node | None]:
    """The values of the fields as they are encoded: a rotated one after its rotation."""
    return [
        result(field.call, 0) if is_op(field.call, "kvc.rope_quantize") else argument(field.call, "x")
        for field in found["fields"]
    ]


def _rotates(call: Node) -> bool:
    return is_op(call, "kvc.rope") or is_op(call, "kvc.rope_quantize")


def _replace_rotation(graph: Graph, rope: Node, rotated: Node) -> None:
    """Let the users of a query's rotation take ``rotated``, encoded first where the rotation did that too."""
    if is_op(rope, "kvc.rope"):
        rope.replace_all_uses_with(rotated)
        return
    plain, field = result(rope, 0), EncodedField(rope, 1, str(rope.kwargs["encoding"]))
    if plain:
        plain.replace_all_uses_with(rotated)
    source, scale = rope.meta["source"], argument(rope, "scale")
    again = insert_call(graph, f"kvc.quantize_{field.codec}", rotated, scale, source=source)
    for old, new in zip(field.planes, again if isinstance(again, tuple) else (again,), strict=True):
        if old is not None and new is not None:
            old.replace_all_uses_with(new)


def _takers(rope: Node) -> tuple[Node, ...]:
    """The calls that take what a rotation makes."""
    if is_op(rope, "kvc.rope"):
        return tuple(rope.users)
    return tuple(user for taken in rope.users for user in taken.users)


def _users(node: Node | None) -> tuple[Node, ...]:
    return tuple(node.users) if node is not None else ()


class FuseAppend(GraphPass):
    """Fuses rotation, encoding and the store of a step's rows."""

    name = "fuse_append"
    requires = Stage.FUSED
    ensures = Stage.FUSED
    optional = True
    rules = (StoreOfEncodedRows(),)

    def rewrite(self, graph: Graph, program: Program) -> Rewritten:
        """Fuse wherever the two encoded fields of a row are stored; the key of an indexer is no such place."""
        done = apply_rules(graph, self.rules)
        misses = tuple(miss for miss in done.misses if miss.reason != _SINGLE_FIELD)
        notes = (f"{graph.name}: {_SINGLE_FIELD}",) if len(misses) < len(done.misses) else ()
        return replace(done, misses=misses, notes=notes)
