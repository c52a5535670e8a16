"""fp32: no scale, the little-endian bytes of the value."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs.plain import decode_as, encode_as


def encode(x: torch.Tensor, scale: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """``x`` in float32, nearest even."""
    return encode_as(torch.float32, x)


def decode(planes: Sequence[torch.Tensor], scale: torch.Tensor | None) -> torch.Tensor:
    """The stored float32 in fp32, exact."""
    return decode_as(torch.float32, planes)
