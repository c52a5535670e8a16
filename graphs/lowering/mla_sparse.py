"""Lowering of `mla_sparse` layers of variant `dsa`: attention in the latent's space over rows that an indexer chooses.

Both phases are absorbed. In generation the chosen rows are gathered, the step's own among them, as stored; in the
context phase all cached rows are, and the step's own are put beside them as they were computed.
"""

from typing import Any, ClassVar

import torch

from kvc.encodings import ENCODINGS
from kvc.graphs.graph import Graph
from kvc.graphs.lowering.layer import LayerLowering, Node
from kvc.graphs.lowering.mla import latent_inputs, latent_weights
from kvc.graphs.lowering.signature import Signature
from kvc.graphs.program import Phase
from kvc.specs.resolved import IndexerShape, MlaShape
from kvc.specs.scratch import UNIT, code_scale


class SparseLowering(LayerLowering):
    """Emits one layer graph.

    Inputs of `mla` and, unless the indexer is shared, index_q [T, Hi, Di] and index_k [T, 1, Di] before RoPE and
    index_weights [T, Hi] in fp32; out [T, H, V] and then selected int32 [T, K], which layers that share the indexer
    take as ``selected.rows``.
    """

    wide_inputs: ClassVar[frozenset[str]] = frozenset({"index_weights"})

    def __init__(self, name: str, signature: Signature, shape: MlaShape, indexer: IndexerShape) -> None:
        self.shape, self.indexer = shape, indexer
        heads, dim = indexer.heads, indexer.head_dim
        index = {"index_q": (heads, dim), "index_k": (1, dim), "index_weights": (heads,)}
        inputs = latent_inputs(shape) | ({} if indexer.shared else index)
        super().__init__(name, signature, inputs, latent_weights(shape))

    def declare(self, signature: Signature) -> None:
        """The pool of index keys or the rows that another layer chose, and a scale of one where codes need it."""
        if self.indexer.shared:
            self.chosen = self.b.placeholder("selected", "rows", torch.int32, ("T", self.indexer.top_k))
        else:
            page_bytes = signature.buffers["index_key"].page_bytes
            self.index_pool = self.b.placeholder("pool", "index_key", torch.uint8, ("I", page_bytes))
        wanted = code_scale(self.run)
        if wanted == UNIT:
            self.code_scale: Node | None = self.scale(UNIT)
        elif self.twin:
            self.code_scale = self.twin.scales[0]
        else:
            self.code_scale = self.scales[wanted] if wanted else None

    def context(self) -> Graph:
        """All cached rows of the sequences, own rows as computed."""
        q_rope, k_rope = self._stored()
        selected, step = self._selected(), self.step
        rows = self.gathered(step.committed, **self._scratch())
        own = [self.inputs["latent"], k_rope]
        rows = self.call("place_own_rows", rows, own, step.positions, step.sequence_ids, self.code_scale)
        return self._attended(q_rope, rows, selected, "sequence")

    def generation(self) -> Graph:
        """The selected rows alone."""
        q_rope, _ = self._stored()
        selected, step = self._selected(), self.step
        rows = self.gathered(step.lengths, (selected, step.sequence_ids), **self._scratch())
        return self._attended(q_rope, rows, selected, "selection")

    def _scratch(self) -> dict[str, Any]:
        return {"dtype": torch.uint8 if self.code_scale else self.dtype, "code_scale": self.code_scale}

    def _stored(self) -> tuple[Node, Node]:
        """q_rope and k_rope after RoPE; latent and k_rope are in the history."""
        q_rope, k_rope = self.rotate(self.inputs["q_rope"]), self.rotate(self.inputs["k_rope"])
        self.store(self.inputs["latent"], k_rope)
        return q_rope, k_rope

    def _selected(self) -> Node:
        """The rows that the indexer chooses for each token, its own keys stored before, or another layer's choice."""
        if self.indexer.shared:
            return self.chosen
        q, k = (self._rotate_index(self.inputs[name]) for name in ("index_q", "index_k"))
        self._store_index_key(k)
        step, indexer = self.step, self.indexer
        made: Node = self.call(
            "index_topk",
            *(q, self.inputs["index_weights"], self.index_pool),
            *(step.page_tables["index_key"], step.positions, step.sequence_ids),
            encoding=indexer.encoding,
            score_scale=indexer.head_dim**-0.5,
            tokens_per_page=self.run.tokens_per_page,
            top_k=indexer.top_k,
        )
        return made

    def _rotate_index(self, x: Node) -> Node:
        """Its first features, as many as the layer's RoPE rotates, paired as the indexer says."""
        layout = self.indexer.rope_layout
        return self.call("rope", x, self.table, self.step.positions, layout=layout) if layout else x  # type: ignore[no-any-return]

    def _store_index_key(self, key: Node) -> None:
        encoding = ENCODINGS[self.indexer.encoding]
        planes = self.planes(encoding, self.indexer.fields, [key], [None])
        rows = self.step.write_rows["index_key"]
        self.call("store_rows", self.index_pool, planes, rows, tokens_per_page=self.run.tokens_per_page)

    def _attended(self, q_rope: Node, rows: list[Node], selected: Node, rows_of: str) -> Graph:
        step, absorb = self.step, self.weights["w_uk"]
        out, _ = self.call(
            "mla_sparse",
            *(self.call("project_heads", self.inputs["q_nope"], absorb), q_rope, *rows),
            *(selected, step.positions, step.sequence_ids, step.page_table, self.code_scale),
            rows_of=rows_of,
            softmax_scale=self.shape.softmax_scale,
            tokens_per_page=self.run.tokens_per_page,
        )
        made = {"out": self.call("project_heads", out, self.weights["w_uv"])}
        return self.b.finish(made if self.indexer.shared else made | {"selected": selected})


def lower_mla_sparse(name: str, signature: Signature, phase: Phase) -> Graph:
    """The graph of one phase, not optimised."""
    shape = signature.run.shape
    if not isinstance(shape, MlaShape) or shape.indexer is None:  # lowering is chosen by kind
        raise TypeError(f"{shape.kind} layers without an indexer are not lowered here")
    lowering = SparseLowering(name, signature, shape, shape.indexer)
    return lowering.context() if phase == "context" else lowering.generation()
