"""Lowering of `gqa` layers with full coverage: RoPE, encode, store, attend."""

from typing import Any

from kvc.graphs.graph import Graph
from kvc.graphs.lowering.layer import LayerLowering, Node
from kvc.graphs.lowering.signature import Signature
from kvc.graphs.program import Phase
from kvc.specs.resolved import GqaShape


class GqaLowering(LayerLowering):
    """Emits one layer graph: q [T, H, D], k [T, Hk, D], v [T, Hk, V] before RoPE -> out [T, H, V]."""

    def __init__(self, name: str, signature: Signature, shape: GqaShape) -> None:
        self.shape = shape
        inputs = {"q": (shape.heads, shape.head_dim)} | {field.name: (field.heads, field.dim) for field in shape.fields}
        super().__init__(name, signature, inputs)

    def _stored(self) -> tuple[Node, Node, Node]:
        """q, k and v after RoPE; k and v are in the history."""
        q, k, v = self.rotate(self.inputs["q"]), self.rotate(self.inputs["k"]), self.inputs["v"]
        self.store(k, v)
        return q, k, v

    def context(self) -> Graph:
        """Own rows as computed, cached rows from the pool."""
        q, k, v = self._stored()
        step, scales = self.step, (self.scales["k"], self.scales["v"])
        if self.twin:
            return self._finished(
                "gqa_context_gathered",
                *(q, k, v, self.gathered(step.committed), step.page_table, step.committed, step.query_starts),
                tokens_per_page=self.run.tokens_per_page,
            )
        return self._finished(
            "gqa_context",
            *(q, k, v, self.pool, step.page_table, step.committed, step.query_starts, *scales),
            **self.history(),
        )

    def generation(self) -> Graph:
        """All rows, the step's own among them, as stored."""
        q, _, _ = self._stored()
        step = self.step
        if self.twin:
            rows = self.gathered(step.lengths)
            size = self.run.tokens_per_page
            return self._finished("gqa_decode_gathered", q, rows, step.page_table, step.lengths, tokens_per_page=size)
        return self._finished(
            "gqa_decode",
            *(q, self.pool, step.page_table, step.lengths, self.scales["k"], self.scales["v"]),
            kv_heads=self.shape.kv_heads,
            v_head_dim=self.shape.v_head_dim,
            **self.history(),
        )

    def _finished(self, attention: str, *operands: Any, **attributes: Any) -> Graph:
        out, _ = self.call(attention, *operands, softmax_scale=self.shape.softmax_scale, **attributes)
        return self.b.finish({"out": out})


def lower_gqa(name: str, signature: Signature, phase: Phase) -> Graph:
    """The graph of one phase, not optimised."""
    shape = signature.run.shape
    if not isinstance(shape, GqaShape):  # lowering is chosen by kind
        raise TypeError(f"{shape.kind} layers are not lowered here")
    lowering = GqaLowering(name, signature, shape)
    return lowering.context() if phase == "context" else lowering.generation()
