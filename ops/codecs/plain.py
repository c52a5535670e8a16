"""Codecs that store the value itself as bytes."""

from collections.abc import Sequence

import torch


def encode_as(dtype: torch.dtype, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The bytes of ``x`` rounded to ``dtype``, nearest even; never a view of ``x``."""
    return (x.to(dtype, copy=True, memory_format=torch.contiguous_format).view(torch.uint8),)


def decode_as(dtype: torch.dtype, planes: Sequence[torch.Tensor]) -> torch.Tensor:
    """The values in fp32; a view of the plane where that is possible."""
    plane = planes[0]
    aligned = plane.data_ptr() % dtype.itemsize == plane.storage_offset() % dtype.itemsize == 0
    if not (aligned and plane.is_contiguous() and plane.stride(-1) == 1):
        plane = plane.clone(memory_format=torch.contiguous_format)
    return plane.view(dtype).float()
