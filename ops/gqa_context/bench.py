"""Benchmark cases of kvc::gqa_context."""

from kvc.ops.bench_shapes import LLAMA3_8B, SMOLLM2, Case, context

CASES = {
    "SmolLM2, context of 2048": context(SMOLLM2, 2048),
    "SmolLM2, 512 tokens on 1536 cached": context(SMOLLM2, 512, 1536),
}
GPU_CASES = {
    "Llama-3.1-8B, bf16, context of 8192": Case(context(LLAMA3_8B, 8192, encoding="bf16"), latent=False),
    "Llama-3.1-8B, fp8, 2048 tokens after 6144": Case(context(LLAMA3_8B, 2048, 6144), latent=False),
}
