"""Benchmark cases of kvc::gqa_decode_gathered: named shapes for `benchmarks/ops.py`."""

from kvc.ops.bench_shapes import SMOLLM2, decode

CASES = {
    "SmolLM2, 1 token at 2048": decode(SMOLLM2, 2048),
}
