"""RoPE of q and k, encoding of k and v and the store become `append_gqa`: one launch instead of four.

A layer without RoPE has no q to rotate: its two encodings and the store fuse alone.
"""

from dataclasses import dataclass

import torch.fx

from kvc.compiler_passes.effects import accesses, argument, producer
from kvc.compiler_passes.fuse_rope_quantize import QUANTIZE, codec_of
from kvc.compiler_passes.infra import GraphPass, Rewritten
from kvc.compiler_passes.rewrite import Bindings, Call, Rule, Value, WhyNot, apply_rules, describe
from kvc.compiler_passes.stages import Stage
from kvc.graphs.builder import insert_call
from kvc.graphs.graph import Graph, is_op, op_name, result, result_values
from kvc.graphs.program import Program

Node = torch.fx.Node


@dataclass(frozen=True)
class EncodedField:
    """One stored field: the call that encodes it, the index of its first plane, and the codec."""

    call: Node
    first_plane: int
    codec: str

    @property
    def planes(self) -> list[Node | None]:
        """The planes in the order of the codec's parts, None where nothing takes one."""
        if len(result_values(self.call)) == 1:
            return [self.call]
        return [result(self.call, index) for index in range(self.first_plane, len(result_values(self.call)))]


def encoded_field(call: Node) -> EncodedField | None:
    """What ``call`` encodes, None for a call that does not encode."""
    if is_op(call, "kvc.rope_quantize"):
        return EncodedField(call, 1, str(call.kwargs["encoding"]))
    if call.op == "call_function" and op_name(call.target).startswith(QUANTIZE):
        return EncodedField(call, 0, codec_of(call))
    return None


class StoreOfEncodedRows(Rule):
    """Anchored at the store. The check walks from there to the encodings, to the rotations and to the attention."""

    pattern = Call("kvc.store_rows", "store", {"pool": Value("pool"), "rows": Value("rows")})

    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Find k, v and q, or say what is in the way."""
        return self._find_fields(graph, found) or self._find_query(graph, found)

    def _find_fields(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Bind ``k`` and ``v``, the calls that encode them."""
        store = found["store"]
        planes = argument(store, "planes")
        calls = list(dict.fromkeys(producer(plane)[0] for plane in planes))
        fields = [encoded_field(call) for call in calls]
        for call, field in zip(calls, fields, strict=True):
            if field is None:
                return WhyNot(store, f"a stored plane comes from {describe(call)}, which does not encode")
        if len(fields) != 2:
            return WhyNot(store, self._field_count(graph, len(fields)))
        k, v = found["k"], found["v"] = fields
        return self._why_not_pair(store, k, v)  # type: ignore[arg-type]

    def _field_count(self, graph: Graph, count: int) -> str:
        stores = sum(is_op(call, "kvc.store_rows") for call in graph.calls)
        if count == 1 and stores > 1:
            return f"K and V are stored by different stores, {stores} in this graph"
        return f"the number of encoded fields stored here is {count}, not 2 (K and V)"

    def _why_not_pair(self, store: Node, k: EncodedField, v: EncodedField) -> WhyNot | None:
        if k.codec != v.codec:
            return WhyNot(store, f"K is encoded as {k.codec}, V as {v.codec}")
        if is_op(v.call, "kvc.rope_quantize"):
            return WhyNot(v.call, "the second stored field, V, is rotated")
        page_order = [plane for pair in zip(k.planes, v.planes, strict=True) for plane in pair]
        if page_order != list(argument(store, "planes")):
            return WhyNot(store, "the planes are not in the order K, V of each part")
        for plane in page_order:
            other = next((user for user in _users(plane) if user is not store), None)
            if other is not None:
                return WhyNot(other, f"an encoded plane is used by {describe(other)} too")
        return None

    def _find_query(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Bind ``rope``, the rotation of q under the table and positions of k; None where k is not rotated."""
        k, found["rope"] = found["k"].call, None
        if not is_op(k, "kvc.rope_quantize"):
            rotation = producer(argument(k, "x"))[0]
            rotated = is_op(rotation, "kvc.rope") or is_op(rotation, "kvc.rope_quantize")
            return WhyNot(rotation, "K is rotated by an op of its own") if rotated else None
        queries = self._queries(graph, found["pool"])
        if len(queries) != 1:
            return WhyNot(found["store"], f"{len(queries)} queries attend to the pool, not one")
        rope = producer(queries[0])[0]
        if not is_op(rope, "kvc.rope"):
            return WhyNot(k, f"K is rotated, but q is {describe(queries[0])}")
        found["rope"] = rope
        return self._why_not_same_rotation(rope, k) or self._why_not_movable(graph, found)

    def _queries(self, graph: Graph, pool: Node) -> list[Node]:
        readers = (call for call in graph.calls if (pool, "read") in accesses(call))
        return list(dict.fromkeys(q for q in (argument(reader, "q") for reader in readers) if q is not None))

    def _why_not_same_rotation(self, rope: Node, k: Node) -> WhyNot | None:
        for name in ("positions", "table", "layout"):
            q_value, k_value = argument(rope, name), argument(k, name)
            if q_value is not k_value and q_value != k_value:
                return WhyNot(rope, f"{name} of q and k differ: {describe(q_value)} and {describe(k_value)}")
        return None

    def _why_not_movable(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """The fused op stands where the store was: q must be known there and no rotated value needed before."""
        order = {node: index for index, node in enumerate(graph.fx.nodes)}
        store, rope = found["store"], found["rope"]
        if order[producer(rope.args[0])[0]] > order[store]:
            return WhyNot(rope, "q is made after the store")
        for user in (*rope.users, *_users(result(found["k"].call, 0))):
            if order[user] < order[store]:
                return WhyNot(user, "a rotated value is used before the store")
        return None

    def replace(self, graph: Graph, found: Bindings) -> None:
        """Put `append_gqa` in the place of the store."""
        store, rope, k, v = found["store"], found["rope"], found["k"].call, found["v"].call
        rotated_k = result(k, 0) if rope else None
        rotation = (argument(rope, "table"), argument(rope, "positions")) if rope else (None, None)
        tensors = (argument(rope, "x") if rope else None, argument(k, "x"), argument(v, "x"), *rotation, found["rows"])
        with graph.fx.inserting_before(store):
            q_out, k_out = insert_call(  # type: ignore[misc]
                graph,
                "kvc.append_gqa",
                *(found["pool"], *tensors, argument(k, "scale"), argument(v, "scale")),
                encoding=found["k"].codec,
                keep_k=bool(_users(rotated_k)),
                layout=argument(rope, "layout") if rope else None,
                tokens_per_page=store.kwargs["tokens_per_page"],
                source=store.meta["source"],
            )
        if rope:
            rope.replace_all_uses_with(q_out)
        if rotated_k:
            rotated_k.replace_all_uses_with(k_out)
        graph.fx.erase_node(store)


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
        """Fuse wherever encoded K and V are stored."""
        return apply_rules(graph, self.rules)
