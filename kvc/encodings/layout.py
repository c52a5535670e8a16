"""From an encoding and the fields of a row to the bytes of a page."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from kvc.encodings.table import Encoding, PartFormat

PLANE_ALIGNMENT = 16  # bytes; every plane of a page starts on a multiple of it

# Bytes of an element of a state tensor.
STATE_DTYPES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Field:
    """What a row holds for one token: ``heads`` vectors of ``dim`` values (K: `Field("k", kv_heads, head_dim)`)."""

    name: str
    heads: int
    dim: int


@dataclass(frozen=True)
class StateTensor:
    """One tensor of a sequence's state; ``sharded``: the dimension that tensor parallelism divides, if any."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sharded: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * STATE_DTYPES[self.dtype]


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
    """The planes of a page: data of all fields first, then their block scales, each 16-byte aligned.

    ``tokens_per_page`` are the rows of a page: of tokens, of compressed groups of them, or one state.
    """

    planes: tuple[Plane, ...]
    tokens_per_page: int
    page_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one token, rounding left out."""
        return sum(plane.heads * plane.row_bytes for plane in self.planes)

    @property
    def scale_bytes(self) -> int:
        """Bytes of block scales in a row, where they are planes of their own."""
        return sum(plane.heads * plane.row_bytes for plane in self.planes if plane.part == "scales")


# What a plane holds of one token: (field names, part names, heads, bytes).
_Shape = tuple[str, str, int, int]


def _align(size: int, multiple: int = PLANE_ALIGNMENT) -> int:
    return -(-size // multiple) * multiple


def _split(encoding: Encoding, fields: tuple[Field, ...]) -> Iterator[_Shape]:
    """A plane for every field of every part."""
    for part in encoding.parts:
        for field in fields:
            if part.has(field.name):
                yield field.name, part.name, field.heads, part.row_bytes(field.dim)


def _whole_rows(encoding: Encoding, fields: tuple[Field, ...]) -> Iterator[_Shape]:
    """A plane for each of the encoding's lists of parts that stay together."""
    widths = {field.name: field.dim for field in fields}
    parts: dict[tuple[str, str], PartFormat] = {
        (part.name, name): part for part in encoding.parts for name in part.fields or ()
    }
    for row in encoding.rows:
        size = sum(parts[part, name].row_bytes(widths[name]) for part, name in row)
        names, kinds = ("+".join(dict.fromkeys(column)) for column in zip(*((n, p) for p, n in row), strict=True))
        yield names, kinds, 1, size


def _check_widths(encoding: Encoding, fields: tuple[Field, ...]) -> None:
    given = {field.name: field.heads * field.dim for field in fields}
    if encoding.widths and given != dict(encoding.widths):
        wanted, got = (
            " + ".join(f"{width} {name}" for name, width in pair) for pair in (encoding.widths, given.items())
        )
        raise ValueError(f"its rows hold {wanted} values, not {got}")
    for field in fields:
        if not any(part.has(field.name) for part in encoding.parts):
            raise ValueError(f"it stores no field `{field.name}`")


def page_layout(encoding: Encoding, fields: tuple[Field, ...], tokens_per_page: int) -> PageLayout:
    """Place the planes of one page.

    Raises ValueError where a field's width does not divide into the encoding's groups, or is not one it has a layout
    for.
    """
    _check_widths(encoding, fields)
    shapes = _whole_rows(encoding, fields) if encoding.rows else _split(encoding, fields)
    return _placed(shapes, tokens_per_page, encoding.page_multiple)


def state_layout(states: Iterable[StateTensor]) -> PageLayout:
    """Place the tensors of one state: a page of one row."""
    return _placed(((state.name, "state", 1, state.nbytes) for state in states), 1)


def _placed(shapes: Iterable[_Shape], rows: int, multiple: int = 1) -> PageLayout:
    planes, offset = [], 0
    for field, part, heads, row_bytes in shapes:
        planes.append(Plane(field, part, offset, heads, row_bytes))
        offset = _align(offset + heads * row_bytes * rows)
    return PageLayout(tuple(planes), rows, _align(offset, multiple))
