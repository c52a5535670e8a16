"""Benchmark cases of kvc::append_gqa."""

from kvc.ops.bench_shapes import LLAMA3_8B, STEPS, Case, Twin, context, decode

CASES = STEPS
GPU_CASES = {
    "Llama-3.1-8B, nvfp4 + fp8, T 16384": Case(context(LLAMA3_8B, 16_384, encoding="nvfp4"), Twin(), latent=False),
    "Llama-3.1-8B, fp8, T 16384": Case(context(LLAMA3_8B, 16_384), latent=False),
    "Llama-3.1-8B, fp8, T 128": Case(decode(LLAMA3_8B, 2048, 128), latent=False),
}
