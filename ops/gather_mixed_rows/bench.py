"""Benchmark cases of kvc::gather_mixed_rows."""

from kvc.ops.bench_shapes import DEEPSEEK_V3, STEPS, Case, Twin, decode

CASES = STEPS
GPU_CASES = {"nvfp4 + fp8, B 64, S 8192": Case(decode(DEEPSEEK_V3, 8192, 64, encoding="nvfp4"), Twin())}
