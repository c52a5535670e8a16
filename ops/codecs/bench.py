"""Benchmark cases of the codec ops: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import STEPS

CASES = STEPS
