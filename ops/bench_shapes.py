"""Shapes of real models for the benchmarks; an op's `bench.py` picks its cases from them."""

from dataclasses import dataclass, replace

import torch

from kvc.ops.example_inputs import Shape


@dataclass(frozen=True)
class Twin:
    """What of a mixed cache is read from its twin."""

    encoding: str = "fp8"
    first: int = 64
    last: int = 256


@dataclass(frozen=True)
class Case:
    """A call to be timed on a GPU; ``latent``: the rows of a pool are a latent and a rope, not K and V."""

    shape: Shape
    twin: Twin | None = None
    latent: bool = True


SMOLLM2 = Shape(
    heads=9, kv_heads=3, head_dim=64, v_head_dim=64, rope_dim=64, tokens_per_page=32, dtype=torch.float32
)  # SmolLM2-135M
LLAMA3_8B = replace(SMOLLM2, heads=32, kv_heads=8, head_dim=128, v_head_dim=128, rope_dim=128, dtype=torch.bfloat16)
DEEPSEEK_V2_LITE = replace(
    LLAMA3_8B, heads=16, latent_dim=512, nope_dim=128, rope_dim=64, v_head_dim=128, tokens_per_page=64
)
DEEPSEEK_V3 = replace(DEEPSEEK_V2_LITE, heads=128)
DEEPSEEK_V3_TP8 = replace(DEEPSEEK_V3, heads=16)
DEEPSEEK_V32 = replace(DEEPSEEK_V2_LITE, heads=128, index_heads=64, index_dim=128, top_k=2048)


def decode(model: Shape, length: int, sequences: int = 1, **changes: object) -> Shape:
    """One token for each of some sequences that reach ``length`` with it."""
    return replace(model, committed=(length - 1,) * sequences, own=(1,) * sequences, **changes)  # type: ignore[arg-type]


def context(model: Shape, tokens: int, committed: int = 0, **changes: object) -> Shape:
    """One chunk of one sequence."""
    return replace(model, committed=(committed,), own=(tokens,), **changes)  # type: ignore[arg-type]


STEPS = {
    "SmolLM2, 1 token at 2048": decode(SMOLLM2, 2048),
    "SmolLM2, 16 tokens at 512": decode(SMOLLM2, 512, 16),
    "SmolLM2, context of 2048": context(SMOLLM2, 2048),
    "Llama-3.1-8B, 1 token at 2048": decode(LLAMA3_8B, 2048),
}
