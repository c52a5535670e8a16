"""Benchmark cases of kvc::mla_context."""

from kvc.ops.bench_shapes import DEEPSEEK_V2_LITE, context

CASES = {
    "V2-Lite, context of 512": context(DEEPSEEK_V2_LITE, 512),
    "V2-Lite, 128 tokens on 1024": context(DEEPSEEK_V2_LITE, 128, 1024),
}
