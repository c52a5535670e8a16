"""An engine with an attention kernel of its own (here: a few lines of torch) on a mixed cache of one gqa layer.

Beside it runs the same model with kvc's attention: outputs agree to fp32 rounding, both pools to the last byte.
"""

import torch

import kvc
from kvc.runtime.batch import Step
from kvc.specs import load_spec_text

SPEC = """
kvc: 1
name: staged
model:
  dtype: fp32
  max_position: 256
  layers: [{kind: gqa, heads: 4, kv_heads: 2, head_dim: 32, rope: {kind: default, theta: 10000}}]
cache:
  encoding: nvfp4
  scales: {source: unit}
  tokens_per_page: 16
  retain: {first: 4, last: 16, encoding: bf16}
attention: {kernel: KERNEL}
target: {device: cpu, max_sequences: 4, max_seq_len: 128, max_tokens: 128, buckets: [1, 2, 4]}
"""
STAGING = [torch.empty(4, 128, 2, 32) for _ in "kv"]  # [sequences, L, heads, dim], one for all layers and steps


def allocate(kernel: str) -> kvc.Cache:
    """A cache whose attention ``kernel`` computes."""
    spec = load_spec_text(SPEC.replace("KERNEL", kernel))
    return kvc.LoadedArtifact(kvc.compile_spec(spec).artifact).allocate(num_slots=32)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The engine's kernel, one sequence: q [n, 4, 32] at ``positions``, staged k and v [L, 2, 32]."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    seen = torch.arange(len(k)) <= positions[:, None]
    scores = torch.einsum("nhd,lhd->hnl", q, k) * 32**-0.5
    return torch.einsum("hnl,lhv->nhv", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


def layer(cache: kvc.Cache, step: Step, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One layer of the engine; q and k come after RoPE."""
    staging, positions = [x[: step.sequences] for x in STAGING], cache.positions()
    for sequence, at in enumerate(step.rows.values()):
        for x, rows in zip(staging, (k, v), strict=True):
            x[sequence, positions[at].long()] = rows[at]  # 1. the step's rows, at their positions
    cache.write_back(0, *staging)  # 2. quantized into the history, and into the twin where its page is held
    cache.stage(0, *staging)  # 3. everything before them, retained rows from the twin
    outs = []
    for sequence, at in enumerate(step.rows.values()):  # 4. the engine's attention
        k_rows, v_rows = (x[sequence, : positions[at][-1] + 1] for x in staging)
        outs.append(attend(q[at], k_rows, v_rows, positions[at]))
    return torch.cat(outs)


def main() -> None:
    """A prompt, a chunk of another beside a decoded token, and two tokens of which one is rejected."""
    engine, own = allocate("engine"), allocate("kvc")
    table = own.bound_tensors(0)["table.rope"]
    random = torch.Generator().manual_seed(0)
    for cache in (engine, own):
        cache.admit("a")
        cache.admit("b")
    steps = [
        ([kvc.Request("a", 40)], {}),
        ([kvc.Request("b", 25), kvc.Request("a", 1, "generation")], {}),
        ([kvc.Request("a", 2, "generation"), kvc.Request("b", 2, "generation")], {"a": 1}),
    ]
    for requests, accepted in steps:
        opened = [cache.begin(requests) for cache in (engine, own)]
        q, k, v = (torch.randn(opened[0].tokens, heads, 32, generator=random) for heads in (4, 2, 2))
        rotated = [torch.ops.kvc.rope.default(x, table, engine.positions(), layout="half") for x in (q, k)]
        difference = layer(engine, opened[0], *rotated, v) - own.layer(0, q, k, v)
        for cache, step in zip((engine, own), opened, strict=True):
            cache.commit(step, accepted)
        pools = zip(engine.pools.tensors.values(), own.pools.tensors.values(), strict=True)
        equal = all(torch.equal(one, other) for one, other in pools)
        phases = " and ".join(f"{request.tokens} tokens of {request.id} ({request.phase})" for request in requests)
        print(
            f"{phases}: outputs differ by less than 1e-5: {bool(difference.abs().max() < 1e-5)}; pools equal: {equal}"
        )


if __name__ == "__main__":
    main()
