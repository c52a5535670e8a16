"""Lowering of `mla` layers: expanded to K and V in the context phase, absorbed into the queries in generation."""

from kvc.graphs.graph import Graph
from kvc.graphs.lowering.layer import LayerLowering, Node
from kvc.graphs.lowering.signature import Signature
from kvc.graphs.program import Phase
from kvc.specs.resolved import MlaShape

Operands = tuple[Node | None, ...]


def latent_inputs(shape: MlaShape) -> dict[str, tuple[int, ...]]:
    """Inputs of a layer with a latent, behind their tokens."""
    heads, rope = shape.heads, shape.qk_rope_head_dim
    queries: dict[str, tuple[int, ...]] = {"q_nope": (heads, shape.qk_nope_head_dim), "q_rope": (heads, rope)}
    return queries | {"latent": (1, shape.kv_lora_rank), "k_rope": (1, rope)}


def latent_weights(shape: MlaShape) -> dict[str, tuple[int, ...]]:
    """W_UK and W_UV."""
    heads, latent = shape.heads, shape.kv_lora_rank
    return {"w_uk": (heads, shape.qk_nope_head_dim, latent), "w_uv": (heads, latent, shape.v_head_dim)}


class MlaLowering(LayerLowering):
    """Emits one layer graph.

    Inputs before RoPE: q_nope [T, H, N], q_rope [T, H, R], latent [T, 1, C] (normed), k_rope [T, 1, R]; weights w_uk
    [H, N, C] and w_uv [H, C, V]; out [T, H, V].
    """

    def __init__(self, name: str, signature: Signature, shape: MlaShape) -> None:
        self.shape, self.chunk_tokens = shape, signature.chunk_tokens
        super().__init__(name, signature, latent_inputs(shape), latent_weights(shape))

    def _stored(self) -> tuple[Node, Node]:
        """q_rope and k_rope after RoPE; latent and k_rope are in the history."""
        q_rope, k_rope = self.rotate(self.inputs["q_rope"]), self.rotate(self.inputs["k_rope"])
        self.store(self.inputs["latent"], k_rope)
        return q_rope, k_rope

    def context(self) -> Graph:
        """Own rows expanded from what was computed, cached rows from what was stored."""
        q_rope, k_rope = self._stored()
        weights = tuple(self.weights.values())
        k, v = self.call("expand_mla", self.inputs["latent"], k_rope, *weights, None, None, None)
        own = (*(self._operand("q", x) for x in (self.inputs["q_nope"], q_rope)), self._operand("k", k))
        own = (*own, self._operand("v", v))
        out, _ = self._attended(own, weights, tuple(self.context_scales.get(name) for name in "qkv"))
        return self.b.finish({"out": out})

    def _attended(self, own: Operands, weights: Operands, context_scales: Operands) -> tuple[Node, Node]:
        """Context attention of own rows over the cached ones, from the pages or, with a twin, gathered."""
        step = self.step
        how = {"chunk_tokens": self.chunk_tokens, "softmax_scale": self.shape.softmax_scale}
        rest = (step.page_table, step.committed, step.query_starts, *weights)
        if self.twin:
            operands = (*own, self.gathered(step.committed), *rest, *context_scales)
            size = self.run.tokens_per_page
            return self.call("mla_context_gathered", *operands, **how, tokens_per_page=size)  # type: ignore[no-any-return]
        scales = (self.scales["latent"], self.scales["rope"])
        return self.call("mla_context", *own, self.pool, *rest, *scales, *context_scales, **how, **self.history())  # type: ignore[no-any-return]

    def _operand(self, name: str, value: Node) -> Node:
        """An operand of context attention, quantized where that is asked for."""
        scale = self.context_scales.get(name)
        return value if scale is None else self.call("quantize_fp8", value, scale)

    def generation(self) -> Graph:
        """All rows, the step's own among them, as stored; heads meet them in the latent's space."""
        q_rope, _ = self._stored()
        q_latent = self.call("project_heads", self.inputs["q_nope"], self.weights["w_uk"])
        out, _ = self._decoded(q_latent, q_rope)
        return self.b.finish({"out": self.call("project_heads", out, self.weights["w_uv"])})

    def _decoded(self, q_latent: Node, q_rope: Node) -> tuple[Node, Node]:
        step, how = self.step, {"softmax_scale": self.shape.softmax_scale}
        if self.twin:
            operands = (q_latent, q_rope, self.gathered(step.lengths), step.page_table, step.lengths)
            size = self.run.tokens_per_page
            return self.call("mla_decode_gathered", *operands, **how, tokens_per_page=size)  # type: ignore[no-any-return]
        paged = (q_latent, q_rope, self.pool, step.page_table, step.lengths)
        scales = (self.scales["latent"], self.scales["rope"])
        return self.call("mla_decode", *paged, *scales, **how, **self.history())  # type: ignore[no-any-return]


def lower_mla(name: str, signature: Signature, phase: Phase) -> Graph:
    """The graph of one phase, not optimised."""
    shape = signature.run.shape
    if not isinstance(shape, MlaShape):  # lowering is chosen by kind
        raise TypeError(f"{shape.kind} layers are not lowered here")
    lowering = MlaLowering(name, signature, shape)
    return lowering.context() if phase == "context" else lowering.generation()
