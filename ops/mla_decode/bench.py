"""Benchmark cases of kvc::mla_decode."""

from kvc.ops.bench_shapes import DEEPSEEK_V2_LITE, DEEPSEEK_V3, DEEPSEEK_V3_TP8, Case, Twin, decode

CASES = {
    "V2-Lite, 1 token at 2048": decode(DEEPSEEK_V2_LITE, 2048),
    "V2-Lite, 16 tokens at 512": decode(DEEPSEEK_V2_LITE, 512, 16),
}
GPU_CASES = {
    "fp8, B 128, H 16, S 8192": Case(decode(DEEPSEEK_V3_TP8, 8192, 128)),
    "fp8, B 128, H 128, S 4096": Case(decode(DEEPSEEK_V3, 4096, 128)),
    "nvfp4 + fp8, B 128, H 16, S 8192": Case(decode(DEEPSEEK_V3_TP8, 8192, 128, encoding="nvfp4"), Twin()),
    "nvfp4, B 128, H 16, S 8192": Case(decode(DEEPSEEK_V3_TP8, 8192, 128, encoding="nvfp4")),
    "fp8, B 1, H 128, S 8192": Case(decode(DEEPSEEK_V3, 8192)),
}
