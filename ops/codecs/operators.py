"""The ops `quantize_<codec>` and `dequantize_<codec>`, generated from the table of codecs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, Operand, bind, known, wrong
from kvc.ops.codecs.table import CODECS, Codec
from kvc.ops.example_inputs import Example, Shape, activations, scale_for
from kvc.ops.registry import OpDef

_X = Operand("x", "... X", ACTIVATIONS)
_SCALE = Operand("scale", "2", FLOAT32, optional=True)


def row_bytes(op: str, codec: Codec, width: Any) -> list[Any]:
    """Bytes of a row of every plane for fields of ``width`` values, which may be symbolic."""
    if not known(width):
        return [width * part.bits // (8 * part.group) for part in codec.parts]
    try:
        return [part.row_bytes(width) for part in codec.parts]
    except ValueError as error:
        raise wrong(op, "x", f"axis X: {error}") from error


def _width(op: str, codec: Codec, planes: Sequence[torch.Tensor]) -> Any:
    """Values of a row, from the planes that hold them."""
    data, size = codec.parts[0], planes[0].shape[-1]
    width = size * 8 * data.group // data.bits
    if known(size) and data.row_bytes(width) != size:
        raise wrong(op, data.name, f"axis X is {size}, expected whole values of {data.bits} bits")
    for part, plane, expected in zip(codec.parts[1:], planes[1:], row_bytes(op, codec, width)[1:], strict=True):
        if known(plane.shape[-1], expected) and plane.shape[-1] != expected:
            raise wrong(op, part.name, f"axis X is {plane.shape[-1]}, expected {expected} for {width} values")
    return width


def _quantize(codec: Codec) -> OpDef:
    name = f"quantize_{codec.name}"
    single = len(codec.parts) == 1

    def check(x: torch.Tensor, scale: torch.Tensor | None) -> list[Any]:
        sizes = bind(name, (_X, _SCALE), (x, scale))
        codec.check_scale(name, "scale", scale)
        return row_bytes(name, codec, sizes["X"])

    def fake(x: torch.Tensor, scale: torch.Tensor | None) -> Any:
        planes = [x.new_empty((*x.shape[:-1], size), dtype=torch.uint8) for size in check(x, scale)]
        return planes[0] if single else tuple(planes)

    def reference(x: torch.Tensor, scale: torch.Tensor | None) -> Any:
        planes = codec.encode(x, scale)
        return planes[0] if single else planes

    reference.__doc__ = _QUANTIZE_DOC.format(codec=codec.name, parts=_parts(codec))

    def example(shape: Shape) -> Example:
        return (_values(shape, codec), scale_for(codec.name, "k")), {}

    returns = "Tensor" if single else "(" + ", ".join(["Tensor"] * len(codec.parts)) + ")"
    return OpDef(f"{name}(Tensor x, Tensor? scale) -> {returns}", check, fake, reference, example)


def _dequantize(codec: Codec) -> OpDef:
    name = f"dequantize_{codec.name}"
    operands = (*(Operand(part.name, f"... X{i}", BYTES) for i, part in enumerate(codec.parts)), _SCALE)

    def check(*tensors: torch.Tensor, dtype: torch.dtype) -> Any:
        bind(name, operands, tensors)
        codec.check_scale(name, "scale", tensors[-1])
        if dtype not in ACTIVATIONS:
            raise wrong(name, "dtype", f"is {dtype}, expected an activation dtype")
        return _width(name, codec, tensors[:-1])

    def fake(*tensors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensors[0].new_empty((*tensors[0].shape[:-1], check(*tensors, dtype=dtype)), dtype=dtype)

    def reference(*tensors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return codec.decode(tensors[:-1], tensors[-1]).to(dtype, copy=True)

    reference.__doc__ = _DEQUANTIZE_DOC.format(codec=codec.name, parts=_parts(codec))

    def example(shape: Shape) -> Example:
        scale = scale_for(codec.name, "k")
        return (*codec.encode(_values(shape, codec), scale), scale), {"dtype": shape.dtype}

    planes = ", ".join(f"Tensor {part.name}" for part in codec.parts)
    schema = f"{name}({planes}, Tensor? scale, *, ScalarType dtype) -> Tensor"
    return OpDef(schema, check, fake, reference, example)


def _values(shape: Shape, codec: Codec) -> torch.Tensor:
    """K of a shape, in heads that divide into the codec's groups."""
    group = max(part.group for part in codec.parts)
    return activations(replace(shape, head_dim=lcm(shape.head_dim, group)), "k")


def _parts(codec: Codec) -> str:
    return ", ".join(f"{part.name} ({part.dtype}, {part.bits} bits)" for part in codec.parts)


_QUANTIZE_DOC = """Encode values as {codec}.

x [..., X] bf16, fp16 or fp32; scale f32 [2] = [scale, factor] where the codec takes one, else None. Returns the
planes {parts} as uint8 [..., row bytes]. Source: docs/semantics.md, `kvc.ops.codecs.{codec}`.
"""
_DEQUANTIZE_DOC = """Decode {codec} planes to values.

Planes {parts} as uint8 [..., row bytes]; scale as in quantizing; dtype bf16, fp16 or fp32. Returns [..., X]: the fp32
value rounded to dtype. Source: docs/semantics.md, `kvc.ops.codecs.{codec}`.
"""
_MAKERS: tuple[Callable[[Codec], OpDef], ...] = (_quantize, _dequantize)
CODEC_OPS: tuple[OpDef, ...] = tuple(make(codec) for codec in CODECS.values() for make in _MAKERS)
