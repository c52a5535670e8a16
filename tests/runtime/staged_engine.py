"""An engine that brings its own attention: plain torch over staging, beside a cache that stages for it.

RoPE, W_UK and W_UV are those of a cache of the same model whose attention kvc computes.
"""

import torch
from cache_harness import layers, step_inputs
from mixed_caches import new_cache, spec_text

ENGINE = "attention: {kernel: engine}"
ROPE_LAYOUT = {"gqa": "half", "mla": "interleaved"}
MAX_ROWS = 140


def pair(kind, encoding, retain="", dtype="fp32", page=4, passes=None):
    """Caches of one model on poisoned pools: kvc's own attention, and the engine's."""
    words = (kind, encoding, retain, dtype, page)
    return new_cache(spec_text(*words), passes), new_cache(spec_text(*words, more=ENGINE), passes)


def without_twin(cache):
    """All entries of the twin's tables are -1."""
    lifecycle = cache.plan.pools[cache.program.bindings[0].pools["twin"][0]].lifecycle
    tables = cache.manager.slot_tables

    def slot_tables(*args, **more):
        made = tables(*args, **more)
        made[lifecycle] = -1
        return made

    cache.manager.slot_tables = slot_tables


class Engine:
    """Runs the steps of `cache`; `own` gives it what a layer of the model has.

    It keeps one staging for all layers and steps, so what a call does not write is of another layer or step, or NaN.
    ``padded``: it gives as many sequences as the bucket has. ``staged``: copies of what was staged, layer by layer.
    """

    def __init__(self, cache, own, kind, padded=False):
        self.cache, self.own, self.kind, self.padded = cache, own, kind, padded
        signature = cache.program.signatures[cache.program.bindings[0].signature]
        self.shape = signature["shape"]
        widths = fields(signature)
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[cache.program.dtype]
        self.staging = [torch.full((9, MAX_ROWS, *width), torch.nan, dtype=dtype) for width in widths]
        self.staged = []

    def step(self, cache, requests, accepted=None):
        """One whole step; sequence -> output [layers, tokens, H, V]."""
        starts = {request.id: cache.manager.committed(request.id) for request in requests}
        step = cache.begin(requests)
        outs = torch.stack([self.layer(step, i, step_inputs(self.own, step, i, starts), starts) for i in layers(cache)])
        cache.commit(step, accepted)
        return {name: outs[:, at] for name, at in step.rows.items()}

    def layer(self, step, layer, inputs, starts):
        """Put the step's rows into staging, write them back, stage, attend."""
        queries, rows = self.rotated(layer, inputs, self.cache.positions())
        given = step.padded_sequences if self.padded else step.sequences
        staging = [x[:given] for x in self.staging]
        places = [(b, starts[r.id], starts[r.id] + r.tokens) for b, r in enumerate(step.requests)]
        for x, own in zip(staging, rows, strict=True):
            for (b, start, stop), at in zip(places, step.rows.values(), strict=True):
                x[b, start:stop] = own[at]
        self.cache.write_back(layer, *staging)
        self.cache.stage(layer, *staging)
        self.staged += [x[b, :stop].clone() for x in staging for b, _, stop in places]
        outs = [
            self.attend(layer, [q[at] for q in queries], [x[b, :stop] for x in staging], torch.arange(start, stop))
            for (b, start, stop), at in zip(places, step.rows.values(), strict=True)
        ]
        return torch.cat(outs)

    def rotated(self, layer, inputs, positions):
        """Queries, and the rows as they are stored."""

        def rope(x):
            table = self.own.bound_tensors(layer)["table.rope"]
            return torch.ops.kvc.rope.default(x, table, positions, layout=ROPE_LAYOUT[self.kind])

        if self.kind == "gqa":
            q, k, v = inputs
            return [rope(q)], [rope(k), v]
        q_nope, q_rope, latent, k_rope = inputs
        return [q_nope, rope(q_rope)], [latent, rope(k_rope)]

    def attend(self, layer, queries, rows, positions):
        """Attention of one sequence in fp32: queries [n, H, dim], rows [L, heads, dim]."""
        seen = torch.arange(len(rows[0])) <= positions[:, None]
        weighted = gqa if self.kind == "gqa" else absorbed(self.own.bound_tensors(layer))
        scores, values = weighted([x.float() for x in queries], [x.float() for x in rows])
        weights = (scores * self.shape["softmax_scale"]).masked_fill(~seen, -torch.inf).softmax(-1)
        return values(weights).to(queries[0].dtype)


def fields(signature):
    """(heads, dim) of the fields of a row."""
    shape = signature["shape"]
    if shape["kind"] == "gqa":
        return [(shape["kv_heads"], shape["head_dim"]), (shape["kv_heads"], shape["v_head_dim"])]
    return [(1, shape["kv_lora_rank"]), (1, shape["qk_rope_head_dim"])]


def gqa(queries, rows):
    """Scores [H, n, L], and what weights of that shape give."""
    (q,), (k, v) = queries, rows
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.einsum("nhd,lhd->hnl", q, k), lambda weights: torch.einsum("hnl,lhv->nhv", weights, v)


def absorbed(bound):
    """The same in the latent's space."""
    w_uk, w_uv = bound["weight.w_uk"].float(), bound["weight.w_uv"].float()

    def weighted(queries, rows):
        (q_nope, q_rope), (latent, rope) = queries, [x[:, 0] for x in rows]
        q_latent = torch.einsum("nhk,hkc->nhc", q_nope, w_uk)
        scores = torch.einsum("nhc,lc->hnl", q_latent, latent) + torch.einsum("nhr,lr->hnl", q_rope, rope)
        return scores, lambda weights: torch.einsum("hnl,lc,hcv->nhv", weights, latent, w_uv)

    return weighted
