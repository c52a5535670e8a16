"""Benchmark cases of kvc::gqa_decode."""

from kvc.ops.bench_shapes import LLAMA3_8B, SMOLLM2, Case, Twin, decode

CASES = {
    **{f"SmolLM2, 1 token at 2048, {name}": decode(SMOLLM2, 2048, encoding=name) for name in ("fp8", "bf16", "fp32")},
    "SmolLM2, 16 tokens at 512, fp8": decode(SMOLLM2, 512, 16),
    "Llama-3.1-8B, 1 token at 2048, fp8": decode(LLAMA3_8B, 2048),
}
GPU_CASES = {
    **{
        f"Llama-3.1-8B, {name}, B {count}, S 8192": Case(decode(LLAMA3_8B, 8192, count, encoding=name), latent=False)
        for name in ("bf16", "fp8", "nvfp4")
        for count in (1, 64)
    },
    "Llama-3.1-8B, nvfp4 + fp8, B 64, S 8192": Case(
        decode(LLAMA3_8B, 8192, 64, encoding="nvfp4"), Twin(), latent=False
    ),
}
