"""Benchmark cases of kvc::append_mla."""

from kvc.ops.bench_shapes import DEEPSEEK_V2_LITE, DEEPSEEK_V3_TP8, Case, Twin, context, decode

CASES = {
    "V2-Lite, context of 512": context(DEEPSEEK_V2_LITE, 512),
    "V2-Lite, 128 tokens on 1024": context(DEEPSEEK_V2_LITE, 128, 1024),
}
GPU_CASES = {
    "nvfp4 + fp8, T 65536": Case(context(DEEPSEEK_V3_TP8, 65_536, encoding="nvfp4"), Twin()),
    "nvfp4 + fp8, T 128": Case(decode(DEEPSEEK_V3_TP8, 2048, 128, encoding="nvfp4"), Twin()),
    "fp8, T 65536": Case(context(DEEPSEEK_V3_TP8, 65_536)),
    "fp8, T 128": Case(decode(DEEPSEEK_V3_TP8, 2048, 128)),
}
