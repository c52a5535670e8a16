"""Benchmark cases of kvc::merge_states: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import STEPS

CASES = STEPS
