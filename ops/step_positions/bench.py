"""Benchmark cases of kvc::step_positions: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import STEPS

CASES = STEPS
