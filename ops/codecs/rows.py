"""Rows of several fields: which codec encodes each field, and which planes their parts become."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from kvc.encodings import ENCODINGS, Encoding, Field, PageLayout, page_layout
from kvc.ops.axes import wrong
from kvc.ops.codecs.table import Codec, Planes, Scale, codec_of

KV = ("k", "v")
MLA = ("latent", "rope")
INDEX = ("key",)

# A part of a row's planes: the field's index, and the part's among those of its codec.
_Part = tuple[int, int]


@dataclass(frozen=True)
class RowFormat:
    """How rows of ``fields`` are stored in an encoding; `row_format` makes one."""

    encoding: Encoding
    fields: tuple[Field, ...]
    codecs: tuple[Codec, ...]

    @lru_cache(maxsize=64)  # noqa: B019  formats are few and live as long as the process
    def layout(self, tokens_per_page: int) -> PageLayout:
        """The page; ValueError where the fields do not divide into the encoding's groups or widths."""
        return page_layout(self.encoding, self.fields, tokens_per_page)

    @cached_property
    def planes(self) -> tuple[tuple[_Part, ...], ...]:
        """The parts that each plane of a page holds, see `Encoding.planes_of`."""
        return self.encoding.planes_of(tuple(field.name for field in self.fields))

    def encode(self, values: Planes, scales: Sequence[Scale]) -> list[torch.Tensor]:
        """Planes uint8 ``[T, heads, row_bytes]`` in page order of values ``[T, heads, dim]``, one a field.

        A field that is uint8 already holds its codec's codes and is taken as it is.
        """
        encoded = [
            (x,) if x.dtype == torch.uint8 else codec.encode(x, scale)
            for codec, x, scale in zip(self.codecs, values, scales, strict=True)
        ]
        return [_joined([encoded[field][part] for field, part in parts]) for parts in self.planes]

    def decode(self, planes: Planes, scales: Sequence[Scale]) -> list[torch.Tensor]:
        """The inverse: fp32 values ``[..., dim]``, one a field, of planes in page order."""
        found: list[dict[int, torch.Tensor]] = [{} for _ in self.fields]
        for plane, parts in zip(planes, self.planes, strict=True):
            for (field, part), stored in zip(parts, self._split(plane, parts), strict=True):
                found[field][part] = stored
        return [
            codec.decode([stored[part] for part in range(len(stored))], scale)
            for codec, stored, scale in zip(self.codecs, found, scales, strict=True)
        ]

    def _split(self, plane: torch.Tensor, parts: tuple[_Part, ...]) -> Sequence[torch.Tensor]:
        if len(parts) == 1:
            return (plane,)
        return plane.split([self.codecs[i].parts[j].row_bytes(self.fields[i].dim) for i, j in parts], -1)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


@lru_cache(maxsize=256)
def row_format(op: str, encoding: str, fields: tuple[Field, ...]) -> RowFormat:
    """The format of rows of ``fields``; KVC554 for an encoding that is not known or one of whose codecs is missing."""
    codecs = tuple(codec_of(op, encoding, field.name) for field in fields)
    return RowFormat(ENCODINGS[encoding], fields, codecs)


def row_fields(names: Sequence[str], heads: Sequence[int], dims: Sequence[int]) -> tuple[Field, ...]:
    """Fields ``heads[i] x dims[i]``."""
    return tuple(Field(*field) for field in zip(names, heads, dims, strict=True))


def check_scales(op: str, encoding: str, scales: Sequence[tuple[str, str, Any]]) -> None:
    """Raise KVC551 where a scale operand, given as (field, argument, tensor), is missing or has no meaning."""
    for field, argument, scale in scales:
        codec_of(op, encoding, field).check_scale(op, argument, scale)


def check_codes(op: str, encoding: str, field: str, argument: str, x: torch.Tensor) -> None:
    """Raise KVC551 where an operand holds codes (uint8) and its codec's codes are not one e4m3 a value."""
    if x.dtype == torch.uint8 and codec_of(op, encoding, field).name != "fp8":
        raise wrong(op, argument, f"holds codes: encoding {encoding} takes {field} in an activation dtype")
