"""Benchmark cases of kvc::append_gqa: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import STEPS

CASES = STEPS
