"""Benchmark cases of kvc::mla_context_gathered: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import DEEPSEEK_V2_LITE, context

CASES = {
    "V2-Lite, 128 tokens on 1024": context(DEEPSEEK_V2_LITE, 128, 1024),
}
