"""Random steps replayed and run eagerly in the same bucket: equal bit for bit, outputs and pools, on a GPU too."""

import random
from pathlib import Path

import pytest
import torch
from cache_harness import artifact, layers, new_cache, rows, same

from kvc.runtime.batch import Request
from kvc.runtime.capture import capture_inputs, replay_bucket
from kvc.runtime.graph_runner import GraphRunner

TINY = ("tiny-fp8", "tiny-mixed", "tiny-nvfp4-bf16", "tiny-mla-fp8", "tiny-mla-nvfp4-fp8", "tiny-dsa-nvfp4-fp8")
LAYERS = {
    "gqa": "{kind: gqa, repeat: 2, heads: 32, kv_heads: 8, head_dim: 128, rope: {kind: default, theta: 500000}}",
    "mla": "{kind: mla, repeat: 2, heads: 16, kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, "
    "v_head_dim: 128, rope: {kind: default, theta: 10000}}",
}
CACHES = {
    "bf16": "{encoding: bf16, tokens_per_page: 16}",
    "fp8": "{encoding: fp8, tokens_per_page: 16, scales: {source: unit}}",
    "mixed": "{encoding: nvfp4, tokens_per_page: 16, scales: {source: unit}, "
    "retain: {first: 5, last: 9, encoding: fp8, unit: token, scales: {source: unit}}}",
}
REAL = [(kind, cache) for kind in LAYERS for cache in CACHES]
SPEC = """
kvc: 1
name: {name}
model: {{dtype: bf16, max_position: 512, layers: [{layer}]}}
cache: {cache}
target: {{device: cpu, max_sequences: 4, max_seq_len: 64, max_tokens: 64, buckets: [1, 2, 4]}}
"""
BUCKETS, COUNTS, NAMES, LENGTH = (1, 2, 4), (1, 2), "abcde", 60


class Captured:
    """A cache whose generation steps are all captured, on bucket-sized inputs that are filled before a replay."""

    def __init__(self, cache):
        self.cache, self.runner, self.inputs = cache, GraphRunner(), {}
        for bucket in BUCKETS:
            for tokens in COUNTS:
                self._capture(bucket, tokens)

    def _capture(self, bucket, tokens):
        step = self.cache.padding_step(bucket, tokens, prologue=False)
        held = self.inputs[step.bucket] = {
            (layer, place): x.new_full((bucket * tokens, *x.shape[1:]), torch.nan)
            for layer in layers(self.cache)
            for place, x in enumerate(rows(self.cache, "a", layer, 0, 1))
        }
        planned = capture_inputs(self.cache, step.bucket)
        copied = {**planned.copied, **{f"{layer}.{place}": x for (layer, place), x in held.items()}}
        self.runner.capture(step.bucket, lambda: self._forward(step), planned.static, copied)
        self.cache.abort(step)

    def _forward(self, step):
        self.cache.prologue(step)
        held = self.inputs[step.bucket]
        return [
            self.cache.layer(layer, *(x for (at, _), x in held.items() if at == layer)) for layer in layers(self.cache)
        ]

    def step(self, requests, inputs, accepted):
        step = self.cache.begin(requests, prologue=False)
        bucket = replay_bucket(self.cache, step)
        for place, x in self.inputs[bucket].items():
            x[: step.tokens] = inputs[place]
        outs = self.runner.replay(bucket, self.runner.copied(bucket))
        self.cache.commit(step, accepted)
        return [out.clone() for out in outs]


def eager_step(cache, requests, inputs, accepted):
    """In the same bucket: inputs are padded, with other numbers than the captured step's."""
    step = cache.begin(requests)
    outs = []
    for layer in layers(cache):
        given = [x for (at, _), x in inputs.items() if at == layer]
        padded = [torch.cat([x, x.new_zeros((step.padded_tokens - len(x), *x.shape[1:]))]) for x in given]
        outs.append(cache.layer(layer, *padded))
    cache.commit(step, accepted)
    return outs


def inputs_of(cache, requests):
    """(layer, place) -> rows of all requests."""
    found = {}
    for layer in layers(cache):
        parts = [rows(cache, r.id, layer, cache.manager.committed(r.id), r.tokens) for r in requests]
        found |= {(layer, place): torch.cat(x) for place, x in enumerate(zip(*parts, strict=True))}
    return found


def check_random_steps(spec, device, count):
    rng = random.Random(str(spec))
    caches = [new_cache(spec, fill=0xFF, num_slots=40, buckets=BUCKETS, device=device) for _ in range(2)]
    captured, (_, eager) = Captured(caches[0]), caches
    assert all((tensor == 0xFF).all() for tensor in caches[0].pools.tensors.values())
    done = 0
    while done < count:
        arrive_and_leave(rng, caches)
        ready = [s for s in eager.manager.sequences if eager.manager.committed(s) + max(COUNTS) <= LENGTH]
        if not ready:
            continue
        names, tokens = rng.sample(ready, rng.randint(1, len(ready))), rng.choice(COUNTS)
        requests = [Request(name, tokens, "generation") for name in names]
        accepted = {name: rng.randint(0, tokens) for name in names if rng.random() < 0.5}
        inputs = inputs_of(eager, requests)
        outs = captured.step(requests, inputs, accepted)
        expected = eager_step(eager, requests, inputs, accepted)
        assert same(outs, expected), f"step {done}"
        assert all((out[len(names) * tokens :] == 0).all() and out.isfinite().all() for out in outs)
        done += 1
    for key, tensor in caches[0].pools.tensors.items():
        assert same(tensor, eager.pools.tensors[key])


def arrive_and_leave(rng, caches):
    """A sequence may end; another may begin with a prompt, in every cache."""
    held = caches[0].manager.sequences
    full = [name for name in held if caches[0].manager.committed(name) + max(COUNTS) > LENGTH]
    for name in full or rng.sample(held, rng.random() < 0.1 and len(held) > 0):
        for cache in caches:
            cache.release(name)
    if len(caches[0].manager.sequences) < 4 and rng.random() < 0.4:
        name = next(name for name in NAMES if name not in caches[0].manager.sequences)
        prompt = [Request(name, rng.choice([1, 7, 16, 33]))]
        for cache in caches:
            cache.admit(name)
            inputs = inputs_of(cache, prompt)
            step = cache.begin(prompt)
            for layer in layers(cache):
                cache.layer(layer, *(x for (at, _), x in inputs.items() if at == layer))
            cache.commit(step)


@pytest.mark.parametrize(("device", "count"), [("cpu", 20), pytest.param("cuda", 200, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("spec", TINY)
def test_random_steps(spec, device, count):
    if artifact(spec, device=device).program.capture is None:
        pytest.skip("an op of the spec has no kernel that this device can capture")
    check_random_steps(spec, device, count)


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "cache"), REAL)
def test_random_steps_of_real_sizes(tmp_path: Path, kind, cache):
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.format(name=f"{kind}-{cache}", layer=LAYERS[kind], cache=CACHES[cache]))
    check_random_steps(path, "cuda", 200)


@pytest.mark.gpu
@pytest.mark.parametrize("spec", ["tiny-mixed", "tiny-mla-fp8"])
def test_one_copy_from_the_host_a_step(spec):
    """Pages, packing and prologue: what the device needs of the host is in the step buffer."""
    cache = new_cache(spec, buckets=BUCKETS, device="cuda")
    cache.admit("a")
    for _ in range(3):  # kernels are compiled, layouts are known
        cache.abort(cache.begin([Request("a", 1, "generation")]))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        cache.abort(cache.begin([Request("a", 1, "generation")]))
        torch.cuda.synchronize()
    copies = [event.name for event in profile.events() if event.name.startswith("Memcpy")]
    assert len(copies) == 1, copies
    assert "HtoD" in copies[0]
