"""bf16: no scale, the little-endian bytes of the value."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs.plain import decode_as, encode_as


def encode(x: torch.Tensor, scale: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """``x`` in bfloat16, nearest even."""
    return encode_as(torch.bfloat16, x)


def decode(planes: Sequence[torch.Tensor], scale: torch.Tensor | None) -> torch.Tensor:
    """The stored bfloat16 in fp32, exact."""
    return decode_as(torch.bfloat16, planes)
