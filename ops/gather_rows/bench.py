"""Benchmark cases of kvc::gather_rows."""

from kvc.ops.bench_shapes import DEEPSEEK_V3, STEPS, Case, decode

CASES = STEPS
GPU_CASES = {
    f"{name}, B 64, S 8192": Case(decode(DEEPSEEK_V3, 8192, 64, encoding=name)) for name in ("nvfp4", "fp8", "bf16")
}
