"""Benchmark cases of kvc::copy_page_tables: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import STEPS

CASES = STEPS
