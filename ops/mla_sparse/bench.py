"""Benchmark cases of kvc::mla_sparse: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import DEEPSEEK_V32, context, decode

CASES = {
    "V3.2, 1 token at 4096": decode(DEEPSEEK_V32, 4096),
    "V3.2, 16 tokens at 512": decode(DEEPSEEK_V32, 512, 16),
    "V3.2, 128 tokens after 1024": context(DEEPSEEK_V32, 128, 1024),
}
