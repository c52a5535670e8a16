"""Benchmark cases of kvc::gather_mixed_rows: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import STEPS

CASES = STEPS
