"""Limits and names that specs are checked against."""

# Total layers of a spec, `repeat` multiplied out.
MAX_LAYERS = 100_000
MAX_ROPE_TABLE = 1 << 34  # bytes; a program keeps one a rotary embedding on the device

# Tokens a page. Powers of two, as engines and kernels index pages: SGLang 1, vLLM 16, TensorRT-LLM 32, FlashMLA 64.
PAGE_SIZES: tuple[int, ...] = tuple(2**power for power in range(11))

# CUDA architectures that a target may name.
ARCHS: tuple[str, ...] = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")

# Names of the design that this version cannot compile: refused as "not yet" instead of "unknown".
PLANNED_LAYER_KINDS: tuple[str, ...] = ("mla", "mla_sparse", "recurrent")
PLANNED_SCALE_SOURCES: tuple[str, ...] = ("checkpoint",)
PLANNED_ENCODINGS: tuple[str, ...] = (
    "nvfp4",
    "nvfp4_rope_fp8",
    "nvfp4_residual",
    "fp8_ds_mla",
    "fp8_ds_mla_v4",
    "index_key",
    "mixed_nvfp4_fp8",
    "mixed_nvfp4_bf16",
    "mixed_fp8_bf16",
)
