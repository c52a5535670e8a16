"""A whole engine loop on kvc's public API: continuous batching, chunked prefill, preemption and prefix reuse.

Run it with ``python examples/engine.py``. The model is random, so the text means nothing; the cache is real.
"""

import tempfile
from collections.abc import Callable

import torch

import kvc

CHUNK = 16  # prompt tokens of a sequence in one step
Texts = dict[str, list[int]]  # name -> tokens


class ToyModel:
    """Attention layers and nothing else; ``attend(i, q, k, v)`` is the cache's part of layer i."""

    def __init__(self, layers: int, heads: int, kv_heads: int, dim: int, vocabulary: int = 50) -> None:
        generator, width = torch.Generator().manual_seed(0), heads * dim
        sizes = [(width, heads * dim), (width, kv_heads * dim), (width, kv_heads * dim), (width, width)]
        self.dim, self.embedding = dim, torch.randn(vocabulary, width, generator=generator)
        self.layers = [[torch.randn(s, generator=generator) / width**0.5 for s in sizes] for _ in range(layers)]

    def __call__(self, tokens: torch.Tensor, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        """Logits ``[T, vocabulary]`` of tokens ``[T]``."""
        x = self.embedding[tokens]
        for i, (*qkv, out) in enumerate(self.layers):
            x = attend(i, *((x @ weight).unflatten(-1, (-1, self.dim)) for weight in qkv)).flatten(1) @ out
        return x @ self.embedding.T


def generate(cache: kvc.Cache, model: ToyModel, prompts: Texts, new_tokens: int) -> Texts:
    """Continue every prompt by ``new_tokens`` tokens, greedily, as many at a time as the cache holds."""
    text, waiting, running = {name: list(tokens) for name, tokens in prompts.items()}, list(prompts), []
    while waiting or running:
        while waiting and len(running) < cache.limits.max_sequences and min(cache.manager.free_slots):
            running.append(waiting.pop(0))
            cache.admit(running[-1])
            cache.reuse(running[-1], text[running[-1]])  # its own pages after a preemption, another's for equal prompts
        while not run_step(cache, model, text, running):
            waiting.insert(0, running.pop())
            cache.preempt(waiting[0])
        for name in [name for name in running if len(text[name]) >= len(prompts[name]) + new_tokens]:
            running.remove(name)
            cache.release(name)
    return text


def run_step(cache: kvc.Cache, model: ToyModel, text: Texts, running: list[str]) -> bool:
    """One forward: a chunk of every text that is not stored yet, one token of the others; False if out of pages."""
    stored = {name: cache.manager.committed(name) for name in running}
    missing = {name: len(text[name]) - stored[name] for name in running}
    requests = [kvc.Request(name, min(n, CHUNK), "context") for name, n in missing.items() if n > 1]
    requests += [kvc.Request(name, 1, "generation") for name, n in missing.items() if n == 1]
    try:
        step = cache.begin(requests)
    except kvc.OutOfPages:
        if len(running) == 1:
            raise
        return False
    tokens = [t for r in requests for t in text[r.id][stored[r.id] : stored[r.id] + r.tokens]]
    logits = model(torch.tensor(tokens), cache.layer)
    cache.commit(step)
    for name, rows in step.rows.items():
        if cache.manager.committed(name) == len(text[name]):
            text[name].append(int(logits[rows.stop - 1].argmax()))
            cache.record_tokens(name, text[name][-1:])
    return True


def main() -> None:
    """Compile, load, allocate and generate."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = kvc.load(kvc.compile_spec("tiny-fp32").write(f"{folder}/tiny"))
    shape = artifact.program.signatures["gqa0"]["shape"]
    model = ToyModel(len(artifact.program.bindings), shape["heads"], shape["kv_heads"], shape["head_dim"])
    prompts = {"a": list(range(40)), "b": [7], "c": list(range(20, 3, -1)), "d": [5, 6] * 9}
    for name, tokens in generate(artifact.allocate(num_slots=6), model, prompts, new_tokens=24).items():
        print(f"{name}: {tokens[len(prompts[name]) :]}")


if __name__ == "__main__":
    main()
