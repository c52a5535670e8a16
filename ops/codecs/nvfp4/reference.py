"""nvfp4 as in docs/semantics.md."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs.fp8.reference import E4M3_MAX

GROUP = 16
E2M1_MAX = 6.0
MAX = E2M1_MAX * E4M3_MAX  # of a value under the global scale 1
# Magnitudes by code, and between each two of them the bound from which on the upper code is taken: a tie goes to the
# even code, so bounds below an even code belong to it.
_MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_BOUNDS = ((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False))
_SIGN = 8


def factor(scale: torch.Tensor) -> torch.Tensor:
    """``rcp6g``: the IEEE fp32 reciprocal of six times the global scale."""
    return (scale * E2M1_MAX).reciprocal()


def encode(x: torch.Tensor, scale: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Codes, the even element in the low nibble, and the e4m3 scale of every 16 values.

    ``sf = e4m3(clamp(amax * rcp6g))``, ``code = E2M1(x * rcp(sf * g))``: nearest, ties to the even code, saturating at
    6, the sign bit of x kept; NaN becomes code 0 and counts for nothing in amax.
    """
    assert scale is not None
    groups = x.float().unflatten(-1, (-1, GROUP))
    amax = groups.abs().nan_to_num(0.0, torch.inf).amax(-1)
    scales = (amax * scale[1]).clamp_(max=E4M3_MAX).to(torch.float8_e4m3fn)
    steps = (scales.float() * scale[0])[..., None]
    codes = _codes(groups, torch.where(steps == 0, 0.0, steps.reciprocal())).flatten(-2)
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    return packed.contiguous(), scales.contiguous().view(torch.uint8)


def _codes(x: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    size = (x * inverse).abs()
    codes = torch.zeros_like(x, dtype=torch.uint8)
    for bound, belongs_above in _BOUNDS:
        codes += size >= bound if belongs_above else size > bound
    signed = codes + x.signbit().to(torch.uint8) * _SIGN
    return signed.masked_fill_(x.isnan(), 0)


def decode(planes: Sequence[torch.Tensor], scale: torch.Tensor | None) -> torch.Tensor:
    """``e2m1 * (float(sf) * g)`` in fp32."""
    assert scale is not None
    packed, scales = planes[0], planes[1].contiguous().view(torch.float8_e4m3fn)
    codes = torch.stack((packed & 15, packed >> 4), -1).flatten(-2).int()
    magnitudes = _MAGNITUDES.to(packed.device)[codes & 7]
    values = torch.where(codes >= _SIGN, -magnitudes, magnitudes).unflatten(-1, (-1, GROUP))
    return (values * (scales.float() * scale[0])[..., None]).flatten(-2)
