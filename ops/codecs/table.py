"""The codecs as data, and what every codec shares."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kvc.diagnostics import fail
from kvc.encodings import ENCODINGS, PartFormat
from kvc.ops.axes import wrong
from kvc.ops.codecs import bf16, fp8, fp8_block, fp32, nvfp4, nvfp4_residual

Planes = Sequence[torch.Tensor]
Scale = torch.Tensor | None


@dataclass(frozen=True)
class Codec:
    """One rule of docs/semantics.md.

    ``encode(x, scale)`` gives the planes in the order of ``parts``; ``decode(planes, scale)`` the values in fp32.
    ``factor`` makes the second number of a scale operand from the first, None where the codec takes no scale;
    ``largest`` is the largest value under the scale 1, which must be finite under any.
    """

    name: str
    parts: tuple[PartFormat, ...]
    encode: Callable[[torch.Tensor, Scale], tuple[torch.Tensor, ...]]
    decode: Callable[[Planes, Scale], torch.Tensor]
    factor: Callable[[torch.Tensor], torch.Tensor] | None = None
    largest: float = 1.0

    def check_scale(self, op: str, argument: str, scale: Scale) -> None:
        """Raise KVC551 where a scale operand is missing or has no meaning."""
        if (scale is None) != (self.factor is None):
            problem = "is missing: {} needs a scale" if scale is None else "is given: {} takes no scale"
            raise wrong(op, argument, problem.format(self.name))


CODECS: dict[str, Codec] = {
    "fp32": Codec("fp32", ENCODINGS["fp32"].parts, fp32.encode, fp32.decode),
    "bf16": Codec("bf16", ENCODINGS["bf16"].parts, bf16.encode, bf16.decode),
    "fp8": Codec("fp8", ENCODINGS["fp8"].parts, fp8.encode, fp8.decode, fp8.factor, fp8.E4M3_MAX),
    "fp8_block": Codec("fp8_block", ENCODINGS["index_key"].parts, fp8_block.encode, fp8_block.decode),
    "nvfp4": Codec("nvfp4", ENCODINGS["nvfp4"].parts, nvfp4.encode, nvfp4.decode, nvfp4.factor, nvfp4.MAX),
    "nvfp4_residual": Codec(
        "nvfp4_residual",
        ENCODINGS["nvfp4_residual"].parts_of("rope"),
        nvfp4_residual.encode,
        nvfp4_residual.decode,
        nvfp4.factor,
        2 * nvfp4.MAX,
    ),
}


def codec_of(op: str, encoding: str, field: str = "") -> Codec:
    """The codec of a field in an encoding; raises KVC554 for an encoding that is not known or has no such codec."""
    found = ENCODINGS.get(encoding)
    name = found.codec_of(field) if found else ""
    if name not in CODECS:
        known = "has no codec yet" if found else "is not known"
        raise fail("KVC554", f"kvc::{op}: encoding {encoding!r} {known}", help=f"one of {', '.join(_encodings())}")
    return CODECS[name]


def codec_named(op: str, name: str) -> Codec:
    """The codec of that name; raises KVC554 where there is none."""
    if name not in CODECS:
        raise fail("KVC554", f"kvc::{op}: codec {name!r} is not known", help=f"one of {', '.join(CODECS)}")
    return CODECS[name]


def _encodings() -> list[str]:
    """Encodings whose fields all have a codec."""
    return [name for name, e in ENCODINGS.items() if {e.codec, *dict(e.codecs).values()} <= CODECS.keys()]


def scale_operand(codec: str, value: float) -> torch.Tensor:
    """The scale operand ``float32[2] = [scale, factor]`` of a codec, computed once on the host.

    ``scale`` is in the dequantizing direction (value = code * scale); ``factor`` is what quantizing multiplies by, in
    IEEE fp32 from the rounded scale. Raises KVC555 for a codec without scale, for a scale whose factor is not a finite
    positive number, and for one under which the largest value would not be finite.
    """
    factor = CODECS[codec].factor
    if factor is None:
        raise fail("KVC555", f"codec {codec} takes no scale", help="leave the scale operand out")
    scale = torch.tensor(value, dtype=torch.float32)
    operand = torch.stack([scale, factor(scale)])
    if not all(math.isfinite(number) and number > 0 for number in operand.tolist()):
        raise fail("KVC555", f"scale {value!r} of codec {codec} has no finite positive fp32 reciprocal")
    if not math.isfinite(float(operand[0] * CODECS[codec].largest)):
        raise fail("KVC555", f"scale {value!r} of codec {codec} is too large: the largest values would not be finite")
    return operand
