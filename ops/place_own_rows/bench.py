"""Benchmark cases of kvc::place_own_rows: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import DEEPSEEK_V32, context

CASES = {
    "V3.2, 128 tokens after 1024": context(DEEPSEEK_V32, 128, 1024),
    "V3.2, 1024 tokens after 4096": context(DEEPSEEK_V32, 1024, 4096),
}
