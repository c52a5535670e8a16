"""The encodings as data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PartFormat:
    """One stored part of a field: its values (`data`), what they leave (`residual`) or its block scales (`scales`).

    ``bits`` a stored element, ``group`` values share one stored element (1 for data, the block size for scales);
    ``pad`` bytes after them hold nothing. ``fields`` that have the part, None: all.
    """

    name: str
    dtype: str
    bits: int
    group: int = 1
    fields: tuple[str, ...] | None = None
    pad: int = 0

    def row_bytes(self, width: int) -> int:
        """Bytes of one token's part for a field of ``width`` values; ``width`` must divide into groups and bytes."""
        elements, rest = divmod(width, self.group)
        size, odd_bits = divmod(elements * self.bits, 8)
        if rest or odd_bits:
            raise ValueError(f"{width} values do not divide into groups of {self.group} of {self.bits} bits")
        return size + self.pad

    def has(self, field: str) -> bool:
        """Whether ``field`` has the part."""
        return self.fields is None or field in self.fields


@dataclass(frozen=True)
class Encoding:
    """How every field of a row is stored.

    ``codec`` names the rule in docs/semantics.md and the folder in `kvc.ops.codecs`, ``codecs`` those of fields that
    have another one; ``scale`` says whether a field needs a scale operand (`field`) or none, ``scale_of`` which field's
    operand a field uses where it has none of its own (MLA: the latent's for the rope too).

    A page is a plane for every field of every part, in the order of ``parts``; where ``rows`` is given, parts are kept
    together instead: each of its tuples of (part, field) is one plane of whole rows. ``widths`` are the only widths of
    fields it can store, where there is one layout; a page is rounded up to a multiple of ``page_multiple`` bytes.
    """

    name: str
    codec: str
    parts: tuple[PartFormat, ...]
    scale: Literal["none", "field"]
    summary: str
    scale_of: tuple[tuple[str, str], ...] = (("rope", "latent"),)
    rows: tuple[tuple[tuple[str, str], ...], ...] = ()
    widths: tuple[tuple[str, int], ...] = ()
    page_multiple: int = 1
    codecs: tuple[tuple[str, str], ...] = ()

    def codec_of(self, field: str) -> str:
        """The codec of a field."""
        return dict(self.codecs).get(field, self.codec)

    def parts_of(self, field: str) -> tuple[PartFormat, ...]:
        """What is stored of a field, in the order of ``parts``."""
        return tuple(part for part in self.parts if part.has(field))

    def planes_of(self, fields: tuple[str, ...]) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The parts that each plane of a page holds, as (index of the field, index of the part in `parts_of` it).

        One part a plane, in the order of ``parts``, or several where rows are kept whole.
        """
        if self.rows:
            return tuple(
                tuple((fields.index(name), self._place(part, name)) for part, name in row) for row in self.rows
            )
        return tuple(
            ((index, self.parts_of(field).index(part)),)
            for part in self.parts
            for index, field in enumerate(fields)
            if part.has(field)
        )

    def _place(self, part: str, field: str) -> int:
        return [one.name for one in self.parts_of(field)].index(part)

    def scale_field(self, field: str, fields: tuple[str, ...]) -> str:
        """Whose scale operand ``field`` of ``fields`` is stored under."""
        shared = dict(self.scale_of).get(field)
        return shared if shared in fields else field

    def scale_fields(self, fields: tuple[str, ...]) -> tuple[str, ...]:
        """Those of ``fields`` that have a scale operand of their own."""
        if self.scale == "none":
            return ()
        return tuple(field for field in fields if self.scale_field(field, fields) == field)


_LATENT, _ROPE = ("latent",), ("rope",)
_NVFP4_DATA = PartFormat("data", "e2m1", 4)
_NVFP4_SCALES = PartFormat("scales", "e4m3", 8, group=16)


def _plain(name: str, dtype: str, bits: int, summary: str) -> Encoding:
    return Encoding(name, name, (PartFormat("data", dtype, bits),), "none", summary)


_TABLE = (
    _plain("fp32", "float32", 32, "IEEE single, for parity and debugging"),
    _plain("bf16", "bfloat16", 16, "bfloat16"),
    Encoding("fp8", "fp8", (PartFormat("data", "e4m3", 8),), "field", "e4m3, one scale for K and one for V a layer"),
    Encoding(
        "nvfp4",
        "nvfp4",
        (_NVFP4_DATA, _NVFP4_SCALES),
        "field",
        "E2M1, two a byte, one e4m3 scale per 16 and a global scale a field",
    ),
    Encoding(
        "nvfp4_rope_fp8",
        "nvfp4",
        (
            PartFormat("data", "e2m1", 4, fields=_LATENT),
            PartFormat("data", "e4m3", 8, fields=_ROPE),
            PartFormat("scales", "e4m3", 8, group=16, fields=_LATENT),
        ),
        "field",
        "latent as nvfp4, rope as fp8 under its own scale",
        scale_of=(),
        codecs=(("rope", "fp8"),),
    ),
    Encoding(
        "nvfp4_residual",
        "nvfp4",
        (
            PartFormat("data", "e2m1", 4, fields=_LATENT),
            PartFormat("data", "e2m1 main, e2m1 residual", 8, fields=_ROPE),
            PartFormat("scales", "e4m3", 8, group=16, fields=_LATENT),
            PartFormat("scales", "e4m3 main, e4m3 residual", 16, group=16, fields=_ROPE),
        ),
        "field",
        "latent as nvfp4, rope as nvfp4 and the nvfp4 of what that leaves",
        codecs=(("rope", "nvfp4_residual"),),
    ),
    Encoding(
        "fp8_ds_mla",
        "fp8_block",
        (
            PartFormat("data", "e4m3", 8, fields=_LATENT),
            PartFormat("scales", "float32", 32, group=128, fields=_LATENT),
            PartFormat("data", "bfloat16", 16, fields=_ROPE),
        ),
        "none",
        "whole rows of 656 bytes: 512 e4m3, 4 fp32 scales, 64 bf16 rope",
        rows=((("data", "latent"), ("scales", "latent"), ("data", "rope")),),
        widths=(("latent", 512), ("rope", 64)),
        codecs=(("rope", "bf16"),),
    ),
    Encoding(
        "fp8_ds_mla_v4",
        "fp8_block_v4",
        (
            PartFormat("data", "e4m3", 8, fields=_LATENT),
            PartFormat("data", "bfloat16", 16, fields=_ROPE),
            PartFormat("scales", "ue8m0", 8, group=64, fields=_LATENT, pad=1),
        ),
        "none",
        "all 576-byte rows of a page (448 e4m3, 64 bf16 rope), then all 8-byte scale rows",
        rows=((("data", "latent"), ("data", "rope")), (("scales", "latent"),)),
        widths=(("latent", 448), ("rope", 64)),
        page_multiple=576,
        codecs=(("rope", "bf16"),),
    ),
    Encoding(
        "index_key",
        "fp8_block",
        (PartFormat("data", "e4m3", 8), PartFormat("scales", "float32", 32, group=128)),
        "none",
        "e4m3 and one fp32 scale per 128: the key of an indexer",
    ),
)
ENCODINGS: dict[str, Encoding] = {encoding.name: encoding for encoding in _TABLE}

# Encoding -> (encoding of the history, encoding of the twin): names for what `retain` says.
MIXED: dict[str, tuple[str, str]] = {
    "mixed_nvfp4_fp8": ("nvfp4", "fp8"),
    "mixed_nvfp4_bf16": ("nvfp4", "bf16"),
    "mixed_fp8_bf16": ("fp8", "bf16"),
    "mixed_nvfp4_rope_fp8_fp8": ("nvfp4_rope_fp8", "fp8"),
    "mixed_nvfp4_residual_fp8": ("nvfp4_residual", "fp8"),
}
