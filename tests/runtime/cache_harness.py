"""Runs caches of the tiny library specs on made-up q, k, v that depend on sequence, position and layer alone."""

from dataclasses import replace
from functools import lru_cache

import torch

from kvc.compiler import compile_spec
from kvc.compiler_passes.manager import PIPELINE
from kvc.runtime.batch import Request
from kvc.runtime.loader import LoadedArtifact
from kvc.runtime.random_weights import random_weights
from kvc.specs import load_spec

SPECS = ("tiny-fp32", "tiny-bf16", "tiny-fp8", "tiny-mixed", "tiny-mla-fp32", "tiny-mla-bf16", "tiny-mla-fp8")
LENGTH = 64


@lru_cache
def artifact(spec, passes=None, buckets=None, device="cpu"):
    resolved = load_spec(spec, device=(device, "sm_90" if device == "cuda" else None))
    loaded = LoadedArtifact(compile_spec(resolved, passes=PIPELINE[:passes]).artifact)
    if buckets is None:
        return loaded
    capture = replace(loaded.program.capture, buckets=buckets)
    return LoadedArtifact(replace(loaded.artifact, program=replace(loaded.program, buckets=buckets, capture=capture)))


def new_cache(spec, fill=0, num_slots=24, passes=None, buckets=None, device="cpu"):
    """An empty cache; ``passes``: only that many first passes of the pipeline have run, None: all."""
    loaded = artifact(spec, passes, buckets, device)
    weights = random_weights(loaded.program.constants, loaded.program.dtype)
    return loaded.allocate(num_slots=num_slots, fill=fill, weights=weights)


def layers(cache):
    return range(len(cache.program.bindings))


@lru_cache
def _rows(shape, dtype, name, sequence, layer, device):
    seed = sum(map(ord, f"{name}/{sequence}")) * 1000 + layer
    x = torch.randn(LENGTH, *shape, generator=torch.Generator().manual_seed(seed))
    return x.to(device, dtype)


def rows(cache, sequence, layer, start, count, first=0):
    """The inputs of a layer for a sequence's tokens ``[start, start + count)``.

    ``first``: the layer of a larger model that is layer 0 here.
    """
    graph = cache.program.graphs[cache.program.bindings[layer].signature, "context"]
    values = [(str(node.target), node.meta["val"]) for node in graph.placeholders if node.meta["role"] == "input"]
    return [
        _rows(tuple(x.shape[1:]), x.dtype, name, sequence, first + layer, cache.device)[start : start + count]
        for name, x in values
    ]


def step_inputs(cache, step, layer, start_of):
    parts = [rows(cache, r.id, layer, start_of[r.id], r.tokens) for r in step.requests]
    return [torch.cat(x) for x in zip(*parts, strict=True)]


def run_step(cache, requests, accepted=None):
    """One whole step; returns sequence -> output [layers, tokens, H, V]."""
    starts = {request.id: cache.manager.committed(request.id) for request in requests}
    step = cache.begin(requests)
    outs = torch.stack([cache.layer(i, *step_inputs(cache, step, i, starts)) for i in layers(cache)])
    cache.commit(step, accepted)
    return {name: outs[:, at] for name, at in step.rows.items()}


def run(cache, *steps):
    """Several steps, each a list of requests; outputs of a sequence are joined along its tokens."""
    outs = {}
    for requests in steps:
        for request in requests:
            if request.id not in cache.manager.sequences:
                cache.admit(request.id)
        for name, out in run_step(cache, requests).items():
            outs.setdefault(name, []).append(out)
    return {name: torch.cat(parts, 1) for name, parts in outs.items()}


def prefill(sequence, *chunks):
    return [[Request(sequence, tokens)] for tokens in chunks]


def decode(*sequences, steps=1, tokens=1):
    return [[Request(name, tokens, "generation") for name in sequences]] * steps


def stored(cache, sequence):
    """Bytes of a sequence's pages, layer by layer in page order, bytes that hold no token of it left out."""
    found = []
    length = cache.manager.committed(sequence)
    tables = cache.manager.slot_tables([sequence])[:, 0]
    for layer in layers(cache):
        binding = cache.program.bindings[layer]
        pool = cache.plan.pools[binding.pools["history"][0]]
        slots = tables[pool.lifecycle]
        view = cache.pools.view(*binding.pools["history"])
        pages = view[torch.from_numpy(slots[slots >= 0]) * pool.pages_per_slot]
        found.append(_written(cache, binding, pages, length))
    return found


def _written(cache, binding, pages, length):
    from kvc.encodings import ENCODINGS, Field, page_layout

    signature = cache.program.signatures[binding.signature]
    shape, size = signature["shape"], signature["tokens_per_page"]
    kinds = {
        "gqa": (("k", "kv_heads", "head_dim"), ("v", "kv_heads", "v_head_dim")),
        "mla": (("latent", None, "kv_lora_rank"), ("rope", None, "qk_rope_head_dim")),
    }
    fields = tuple(Field(name, shape.get(heads, 1), shape[dim]) for name, heads, dim in kinds[shape["kind"]])
    layout = page_layout(ENCODINGS[signature["encoding"]], fields, size)
    planes = []
    for plane in layout.planes:
        data = pages[:, plane.offset : plane.offset + plane.heads * size * plane.row_bytes]
        tokens = data.reshape(-1, plane.heads, size, plane.row_bytes).transpose(1, 2).flatten(0, 1)
        planes.append(tokens[:length])
    return torch.cat([plane.flatten(1) for plane in planes], 1)


def same_outputs(spec, left, right):
    """Equality of outputs of two batches: bit for bit, but for products of matrices whose rows are all tokens."""
    if "mla" not in spec:
        return same(left, right)
    # In fp8 a product that rounds the other way may move a code of K or V to its neighbour, 1/16 away.
    epsilon = 2**-8 if "fp8" in spec else torch.finfo(left.dtype).eps
    return torch.allclose(left.float(), right.float(), rtol=4 * epsilon, atol=16 * epsilon)


def same(left, right):
    """Equality of tensors or lists of them, bit for bit."""
    if isinstance(left, torch.Tensor):
        return left.shape == right.shape and torch.equal(left, right)
    return len(left) == len(right) and all(map(same, left, right))
