"""Benchmark cases of kvc::overlay_retained_rows: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import STEPS

CASES = STEPS
