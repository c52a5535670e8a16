"""Benchmark cases of kvc::mla_decode_gathered: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import DEEPSEEK_V2_LITE, decode

CASES = {
    "V2-Lite, 1 token at 2048": decode(DEEPSEEK_V2_LITE, 2048),
}
