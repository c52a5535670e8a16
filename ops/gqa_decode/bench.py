"""Benchmark cases of kvc::gqa_decode: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import LLAMA3_8B, SMOLLM2, decode

CASES = {
    **{f"SmolLM2, 1 token at 2048, {name}": decode(SMOLLM2, 2048, encoding=name) for name in ("fp8", "bf16", "fp32")},
    "SmolLM2, 16 tokens at 512, fp8": decode(SMOLLM2, 512, 16),
    "Llama-3.1-8B, 1 token at 2048, fp8": decode(LLAMA3_8B, 2048),
}
