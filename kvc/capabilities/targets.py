"""Limits and names that specs are checked against."""

# Total layers of a spec, `repeat` multiplied out.
MAX_LAYERS = 100_000
MAX_ROPE_TABLE = 1 << 34  # bytes; a program keeps one a rotary embedding on the device

# Tokens a page. Powers of two, as engines and kernels index pages: SGLang 1, vLLM 16, TensorRT-LLM 32, FlashMLA 64.
PAGE_SIZES: tuple[int, ...] = tuple(2**power for power in range(11))

# CUDA architectures that a target may name.
ARCHS: tuple[str, ...] = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
