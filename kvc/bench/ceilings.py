"""What the GPU reaches: the fastest copy and the fastest matrix products, measured, not read from a datasheet."""

from dataclasses import dataclass

import torch

from kvc.bench.timing import time_calls, time_launched
from kvc.ops.codecs import CODECS, scale_operand

_COPY_BYTES = 4 << 30
_GEMM = 8192


@dataclass(frozen=True)
class Ceilings:
    """Bytes a second of a copy (read and written), operations a second of a product in bf16 and in fp8; 0: unknown."""

    copy: float = 0.0
    bf16: float = 0.0
    fp8: float = 0.0


def measure_ceilings(device: torch.device) -> Ceilings:
    """Of a GPU; unknown on a CPU."""
    if device.type != "cuda":
        return Ceilings()
    return Ceilings(_copy(device), *_products(device))


def _copy(device: torch.device) -> float:
    source = torch.randint(256, (_COPY_BYTES,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    # Launched, not captured: in a graph a copy becomes a node of its own kind, which is a third slower.
    return 2 * _COPY_BYTES / (time_launched([lambda: target.copy_(source)]).median * 1e-6)


def _products(device: torch.device) -> tuple[float, float]:
    a, b = (torch.randn(_GEMM, _GEMM, device=device, dtype=torch.bfloat16) for _ in range(2))
    operations = 2 * _GEMM**3
    high = time_calls([lambda: a @ b], device).median
    one = scale_operand("fp8", 1.0).to(device)
    codes = [CODECS["fp8"].encode(x, one)[0].view(torch.float8_e4m3fn) for x in (a, b)]
    scale = torch.ones((), device=device)

    def product() -> torch.Tensor:
        return torch._scaled_mm(codes[0], codes[1].t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)

    low = time_calls([product], device).median
    return operations / (high * 1e-6), operations / (low * 1e-6)
