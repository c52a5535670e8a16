"""A whole model's decode step in one graph: random steps replayed and run eagerly in the same bucket, bit for bit."""

import random
from pathlib import Path

import pytest
import torch
from tiny_models import compile_for, make_model, token_ids

from kvc.integrations.transformers.attachment import Attachment, attach
from kvc.integrations.transformers.captured import CapturedDecode
from kvc.runtime.batch import Request

LENGTH, NAMES = 200, "abcdefgh"
DEVICES = [pytest.param("cpu", 6), pytest.param("cuda", 200, marks=pytest.mark.gpu)]
MODELS = [
    ("llama-odd-heads", "fp8", torch.float32),
    ("qwen3", "bf16", torch.bfloat16),
    ("deepseek_v3", "fp32", torch.float32),
    ("deepseek_v3-yarn", "fp8", torch.bfloat16),
]
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def attached_model(folder: Path, name: str, encoding: str, dtype: torch.dtype, device: str) -> Attachment:
    """The model on a cache whose pools hold what no number is."""
    model = make_model(name, dtype).to(device)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")  # the others sort tokens by expert on some devices
    target = {"device": device, **({"arch": "sm_90"} if device == "cuda" else {})}
    artifact = compile_for(folder, model, encoding, DTYPES[dtype], **target)
    attachment = attach(model, artifact, tokens=2048)
    for pool in attachment.kvc_cache.pools.tensors.values():
        pool.fill_(0xFF)
    return attachment


class Pair:
    """The same model twice: captured, and run eagerly on bucket-sized inputs."""

    def __init__(self, captured: Attachment, eager: Attachment) -> None:
        self.runners = [captured.runner(), eager.runner()]
        self.caches = [captured.kvc_cache, eager.kvc_cache]
        self.captured, self.eager = (CapturedDecode(a.model, a.kvc_cache, a.num_layers) for a in (captured, eager))
        for bucket in self.caches[0].program.buckets:
            self.captured.capture(bucket)

    def arrive(self, name: str, ids: list[int]) -> None:
        for runner in self.runners:
            runner.admit(name)
            runner.step({name: ids})

    def leave(self, name: str) -> None:
        for runner in self.runners:
            runner.release(name)

    def decode(self, tokens: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
        requests = [Request(name, 1, "generation") for name in tokens]
        replayed = self.captured.replay(requests, list(tokens.values()))
        cache = self.caches[1]
        step = cache.begin(requests, prologue=False)
        ids = torch.zeros(1, step.padded_tokens, dtype=torch.int64, device=cache.device)
        ids[0, : len(tokens)] = torch.tensor(list(tokens.values()))
        logits = self.eager.forward(step, ids)
        cache.commit(step)
        return replayed, logits[: len(tokens)]


@pytest.mark.parametrize(("device", "count"), DEVICES)
@pytest.mark.parametrize(("name", "encoding", "dtype"), MODELS)
def test_random_decode_steps(
    tmp_path: Path, name: str, encoding: str, dtype: torch.dtype, device: str, count: int
) -> None:
    rng = random.Random(name)
    attachments = [attached_model(tmp_path, name, encoding, dtype, device) for _ in range(2)]
    pair = Pair(*attachments)
    manager = pair.caches[0].manager
    for done in range(count):
        held = manager.sequences
        for gone in [s for s in held if manager.committed(s) >= LENGTH or rng.random() < 0.05]:
            pair.leave(gone)
        if len(manager.sequences) < len(NAMES) and (not manager.sequences or rng.random() < 0.3):
            new = next(s for s in NAMES if s not in manager.sequences)
            pair.arrive(new, token_ids(rng.choice([1, 5, 20, 40]), seed=done).tolist())
        names = rng.sample(manager.sequences, rng.randint(1, len(manager.sequences)))
        replayed, expected = pair.decode({s: rng.randrange(3, 90) for s in names})
        assert replayed.isfinite().all()
        assert torch.equal(replayed, expected), f"step {done}, {len(names)} sequences"
    for key, pool in pair.caches[0].pools.tensors.items():
        assert torch.equal(pool, pair.caches[1].pools.tensors[key])
