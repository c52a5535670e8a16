"""fp8_block as in docs/semantics.md: the rule of DeepSeek's caches, read by FlashMLA's sparse kernels."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs.fp8.reference import E4M3_MAX
from kvc.ops.codecs.plain import decode_as

BLOCK = 128
_LEAST = 1e-4  # of a block's largest magnitude, so that a block of zeros has a scale
_RCP_MAX = torch.tensor(1 / E4M3_MAX, dtype=torch.float32).item()


def encode(x: torch.Tensor, scale: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Codes ``e4m3(clamp(x * rcp(s)))`` and scales ``s = max(amax, 1e-4) * fp32(1/448)`` of every block.

    NaN stays NaN and counts for nothing in amax.
    """
    blocks = x.float().unflatten(-1, (-1, BLOCK))
    amax = blocks.abs().nan_to_num(0.0, torch.inf).amax(-1, keepdim=True)
    scales = amax.clamp_(min=_LEAST).mul_(_RCP_MAX)
    codes = (blocks * scales.reciprocal()).clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return codes.flatten(-2).contiguous().view(torch.uint8), scales.squeeze(-1).contiguous().view(torch.uint8)


def decode(planes: Sequence[torch.Tensor], scale: torch.Tensor | None) -> torch.Tensor:
    """``e4m3 * s`` in fp32."""
    codes = planes[0].contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (-1, BLOCK))
    return (codes * decode_as(torch.float32, planes[1:])[..., None]).flatten(-2)
