"""From an encoding and the fields of a row to the bytes of a page."""

from dataclasses import dataclass

from kvc.encodings.table import Encoding

PLANE_ALIGNMENT = 16  # bytes; every plane of a page starts on a multiple of it


@dataclass(frozen=True)
class Field:
    """What a row holds for one token: ``heads`` vectors of ``dim`` values (K: `Field("k", kv_heads, head_dim)`)."""

    name: str
    heads: int
    dim: int


@dataclass(frozen=True)
class Plane:
    """One part of one field for every token of a page, laid out ``[head][token][row_bytes]`` from ``offset``."""

    field: str
    part: str
    offset: int
    heads: int
    row_bytes: int


@dataclass(frozen=True)
class PageLayout:
    """The planes of a page: data of all fields first, then their block scales, each 16-byte aligned."""

    planes: tuple[Plane, ...]
    tokens_per_page: int
    page_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one token, rounding left out."""
        return sum(plane.heads * plane.row_bytes for plane in self.planes)


def _align(size: int) -> int:
    return -(-size // PLANE_ALIGNMENT) * PLANE_ALIGNMENT


def page_layout(encoding: Encoding, fields: tuple[Field, ...], tokens_per_page: int) -> PageLayout:
    """Place the planes of one page.

    Raises ValueError where a field's width does not divide into the encoding's groups.
    """
    planes, offset = [], 0
    for part in encoding.parts:
        for field in fields:
            plane = Plane(field.name, part.name, offset, field.heads, part.row_bytes(field.dim))
            planes.append(plane)
            offset = _align(offset + plane.heads * plane.row_bytes * tokens_per_page)
    return PageLayout(tuple(planes), tokens_per_page, offset)
