"""Benchmark cases of kvc::gqa_context_gathered: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import SMOLLM2, context

CASES = {
    "SmolLM2, 512 tokens on 1536 cached": context(SMOLLM2, 512, 1536),
}
