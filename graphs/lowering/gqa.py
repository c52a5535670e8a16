"""Lowering of `gqa` layers with full coverage: RoPE, encode, store, attend."""

from typing import Any

import torch
import torch.fx

from kvc.encodings import ENCODINGS
from kvc.graphs.builder import GraphBuilder
from kvc.graphs.graph import Graph
from kvc.graphs.lowering.signature import Signature
from kvc.graphs.lowering.step import StepValues, derive_step_values
from kvc.graphs.program import Phase
from kvc.specs.resolved import GqaShape

_ACTIVATION = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def _gqa_shape(signature: Signature) -> GqaShape:
    """The layer's dimensions: lowering is chosen by kind."""
    if not isinstance(signature.run.shape, GqaShape):
        raise TypeError(f"{signature.run.shape.kind} layers are not lowered here")
    return signature.run.shape


class GqaLowering:
    """Emits one layer graph: q [T, H, D], k [T, Hk, D], v [T, Hk, V] before RoPE -> out [T, H, V]."""

    def __init__(self, name: str, signature: Signature) -> None:
        self.run, self.shape = signature.run, _gqa_shape(signature)
        self.encoding = ENCODINGS[self.run.encoding]
        self.source = f"{self.run.source.path}:{self.run.source.line}"
        self.b = GraphBuilder(name)
        dtype = _ACTIVATION[signature.dtype]
        shapes = {"q": (self.shape.heads, self.shape.head_dim)} | {f.name: (f.heads, f.dim) for f in self.shape.fields}
        self.inputs = {name: self.b.placeholder("input", name, dtype, ("T", *dims)) for name, dims in shapes.items()}
        self.pool = self.b.placeholder("pool", "history", torch.uint8, ("P", signature.page_bytes))
        self.scales = {f.name: self._scale(f.name) for f in self.shape.fields}
        self.table = self._rope_table()
        self.step: StepValues = derive_step_values(self.b, signature, self.source)

    def _scale(self, field: str) -> torch.fx.Node | None:
        scaled = self.encoding.scale == "field"
        return self.b.placeholder("scale", field, torch.float32, (2,)) if scaled else None

    def _rope_table(self) -> torch.fx.Node | None:
        rope = self.shape.rope
        return self.b.placeholder("table", "rope", torch.float32, ("M", rope.dim)) if rope else None

    def call(self, op: str, *args: Any, **attributes: Any) -> Any:
        """A kvc op, citing the layer's spec line."""
        return self.b.call(f"kvc.{op}", *args, source=self.source, **attributes)

    def rotate(self, x: torch.fx.Node) -> torch.fx.Node:
        """x [T, heads, D] with positions encoded, or as it is in a layer without RoPE."""
        rope = self.shape.rope
        return self.call("rope", x, self.table, self.step.positions, layout=rope.layout) if rope else x

    def store(self, k: torch.fx.Node, v: torch.fx.Node) -> None:
        """Encode this step's rows and write them to the history."""
        quantize = f"quantize_{self.encoding.codec}"
        planes = [self.call(quantize, x, self.scales[name]) for name, x in (("k", k), ("v", v))]
        self.call("store_rows", self.pool, planes, self.step.rows, tokens_per_page=self.run.tokens_per_page)

    def history(self) -> dict[str, Any]:
        """Attributes of an attention that reads the history."""
        return {
            "encoding": self.run.encoding,
            "tokens_per_page": self.run.tokens_per_page,
            "softmax_scale": self.shape.softmax_scale,
        }

    def context(self) -> Graph:
        """Own rows as computed, cached rows from the pool."""
        q, k, v = self.rotate(self.inputs["q"]), self.rotate(self.inputs["k"]), self.inputs["v"]
        self.store(k, v)
        step, scales = self.step, (self.scales["k"], self.scales["v"])
        out, _ = self.call(
            "gqa_context",
            *(q, k, v, self.pool, step.page_table, step.committed, step.query_starts, *scales),
            **self.history(),
        )
        return self.b.finish({"out": out})

    def generation(self) -> Graph:
        """All rows, the step's own among them, as stored."""
        q, k, v = self.rotate(self.inputs["q"]), self.rotate(self.inputs["k"]), self.inputs["v"]
        self.store(k, v)
        out, _ = self.call(
            "gqa_decode",
            *(q, self.pool, self.step.page_table, self.step.lengths, self.scales["k"], self.scales["v"]),
            kv_heads=self.shape.kv_heads,
            v_head_dim=self.shape.v_head_dim,
            **self.history(),
        )
        return self.b.finish({"out": out})


def lower_gqa(name: str, signature: Signature, phase: Phase) -> Graph:
    """The graph of one phase, not optimised."""
    lowering = GqaLowering(name, signature)
    return lowering.context() if phase == "context" else lowering.generation()
