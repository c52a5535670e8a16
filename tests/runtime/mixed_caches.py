"""Small caches with and without a twin, of one model, for comparing them at the layer boundary."""

from functools import lru_cache

import torch
from cache_harness import layers, run_step
from hypothesis import strategies as st

from kvc.compiler import compile_spec
from kvc.compiler_passes.manager import PIPELINE
from kvc.runtime.batch import Request
from kvc.runtime.loader import LoadedArtifact
from kvc.runtime.random_weights import random_weights
from kvc.specs import load_spec_text

LAYERS = {
    "gqa": "{kind: gqa, repeat: 2, heads: 4, kv_heads: 2, head_dim: 16, v_head_dim: 32, "
    "rope: {kind: default, theta: 1e4}}",
    "mla": "{kind: mla, repeat: 2, heads: 3, kv_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 16, "
    "v_head_dim: 16, rope: {kind: default, theta: 1e4, layout: interleaved}}",
}
UNSCALED = ("fp32", "bf16")
PAIRS = [("nvfp4", "bf16"), ("nvfp4", "fp8"), ("fp8", "bf16")]
LATENT_PAIRS = [*PAIRS, ("nvfp4_rope_fp8", "fp8"), ("nvfp4_residual", "bf16")]
KINDS_AND_PAIRS = [("gqa", *pair) for pair in PAIRS] + [("mla", *pair) for pair in LATENT_PAIRS]


def _scaled(encoding):
    return f"encoding: {encoding}" + ("" if encoding in UNSCALED else ", scales: {source: unit}")


def spec_text(kind, encoding, retain="", dtype="fp32", page=4, layers=None, more=""):
    """A spec; ``retain``: `first, last, unit, encoding` in words of the language, or nothing for a plain cache."""
    twin = f", retain: {{{retain}}}" if retain else ""
    model = f"model: {{dtype: {dtype}, max_position: 256, layers: [{layers or LAYERS[kind]}]}}"
    cache = f"cache: {{{_scaled(encoding)}, tokens_per_page: {page}{twin}}}"
    target = "target: {device: cpu, max_sequences: 8, max_seq_len: 128, max_tokens: 128, buckets: [1, 2, 4, 8]}"
    return "\n".join(("kvc: 1", "name: mixed", model.replace("1e4", "10000"), cache, target, more))


def retained(first, last, encoding, unit="token"):
    """The words of `retain`."""
    return f"first: {first}, last: {last}, unit: {unit}, {_scaled(encoding)}"


@lru_cache(maxsize=128)
def artifact(text, passes=None):
    """A compiled spec; ``passes``: only that many first passes."""
    return LoadedArtifact(compile_spec(load_spec_text(text), passes=PIPELINE[:passes]).artifact)


def new_cache(text, passes=None, fill=0xFF, num_slots=256):
    """An empty cache on poisoned pools."""
    loaded = artifact(text, passes)
    weights = random_weights(loaded.program.constants, loaded.program.dtype)
    return loaded.allocate(num_slots=num_slots, fill=fill, weights=weights)


def pool_bytes(cache):
    """Every byte of every pool."""
    return list(cache.pools.tensors.values())


def rows_of(cache, sequence, role, layer):
    """Pages of a sequence in one of a layer's buffers: page of the sequence -> its bytes, held ones alone."""
    pool_id, index = cache.program.bindings[layer].pools[role]
    pool = cache.plan.pools[pool_id]
    slots = cache.manager.slot_tables([sequence])[pool.lifecycle, 0]
    view = cache.pools.view(pool_id, index)
    return {page: view[slot * pool.pages_per_slot] for page, slot in enumerate(slots.tolist()) if slot >= 0}


def every_row(cache, role):
    """Bytes of a buffer's held pages, layer by layer and sequence by sequence."""
    return [
        rows_of(cache, sequence, role, layer) for layer in layers(cache) for sequence in sorted(cache.manager.sequences)
    ]


def equal(left, right):
    """Bit for bit, over tensors, lists and dicts of them."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return len(left) == len(right) and all(map(equal, left, right))


@st.composite
def schedules(draw):
    """Steps of up to three sequences: chunks of context, then generation of one to three tokens, some rolled back."""
    count = draw(st.integers(1, 3))
    steps = []
    for _ in range(draw(st.integers(2, 5))):
        generating = draw(st.lists(st.sampled_from(range(count)), unique=True))
        tokens = draw(st.integers(1, 3))
        step = [(name, draw(st.integers(1, 12)), "context") for name in range(count) if name not in generating]
        step += [(name, tokens, "generation") for name in generating]
        steps.append((step, {name: draw(st.integers(0, n)) for name, n, phase in step if phase == "generation"}))
    return steps


def play(cache, schedule, run=run_step):
    """Outputs of every step; the cache is left with its sequences."""
    outs = []
    for step, accepted in schedule:
        for name, _, _ in step:
            if name not in cache.manager.sequences:
                cache.admit(name)
        requests = [Request(name, tokens, phase) for name, tokens, phase in step]
        outs.append(run(cache, requests, accepted))
    return outs
