"""The ops `quantize_<codec>` and `dequantize_<codec>` in Triton, from the table of codecs."""

# mypy: ignore-errors
from collections.abc import Callable
from typing import Any

import torch

from kvc.ops.codecs.table import CODECS, Codec
from kvc.ops.device.encode import decode, encode


def _quantize(codec: Codec) -> Callable[..., Any]:
    def run(x: torch.Tensor, scale: torch.Tensor | None) -> Any:
        _, planes = encode(x.reshape(-1, 1, x.shape[-1]), codec, scale)
        planes = tuple(plane.view(*x.shape[:-1], plane.shape[-1]) for plane in planes)
        return planes[0] if len(planes) == 1 else planes

    return run


def _dequantize(codec: Codec) -> Callable[..., Any]:
    def run(*tensors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return decode(tensors[:-1], codec, tensors[-1], dtype)

    return run


_KERNELS = {
    f"{verb}_{codec.name}": make(codec)
    for codec in CODECS.values()
    for verb, make in (("quantize", _quantize), ("dequantize", _dequantize))
}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _KERNELS:
        raise AttributeError(name)
    return _KERNELS[name]
