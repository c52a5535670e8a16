"""One factory of example inputs for every op: named sizes in, tensors that fit each other out.

Feeds the tests, `opcheck` and the benchmarks. Equal shapes give equal tensors.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from kvc.ops.codecs import CODECS, KV, RowFormat, codec_of, row_fields, row_format, scale_operand
from kvc.ops.paging import write_planes

Example = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Shape:
    """Sizes of an example step, named as in docs/semantics.md.

    ``committed`` and ``own`` hold tokens a sequence, before and in this step; ``padding`` tokens follow the own ones.
    """

    committed: tuple[int, ...] = (5, 0, 37)
    own: tuple[int, ...] = (2, 2, 2)
    padding: int = 0
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    v_head_dim: int = 32
    rope_dim: int = 32
    latent_dim: int = 48
    nope_dim: int = 16
    index_heads: int = 3
    index_dim: int = 128
    top_k: int = 6
    tokens_per_page: int = 16
    encoding: str = "fp8"
    dtype: torch.dtype = torch.bfloat16
    layout: Literal["half", "interleaved"] = "half"
    spare_pages: int = 3
    max_position: int = 0

    @property
    def tokens(self) -> int:
        """T."""
        return sum(self.own) + self.padding

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens a sequence after this step."""
        return tuple(c + o for c, o in zip(self.committed, self.own, strict=True))

    @property
    def pages(self) -> tuple[int, ...]:
        """Pages a sequence holds after this step."""
        return tuple(-(-length // self.tokens_per_page) for length in self.lengths)

    @property
    def positions(self) -> int:
        """M, rows of the rope table."""
        return self.max_position or max(self.lengths) + 1


SHAPES: dict[str, Shape] = {
    "plain": Shape(),
    "one_token": Shape(committed=(0,), own=(1,), heads=1, kv_heads=1),
    "odd_heads": Shape(heads=9, kv_heads=3, head_dim=64, v_head_dim=64, rope_dim=64, encoding="bf16"),
    "page_boundary": Shape(committed=(15, 16, 31, 32), own=(1, 1, 1, 1), encoding="fp32", dtype=torch.float32),
    "partial_rope": Shape(heads=6, kv_heads=2, v_head_dim=48, rope_dim=20, layout="interleaved", dtype=torch.float16),
    "padding": Shape(padding=5),
}


def _generator(name: str) -> torch.Generator:
    """Of the default device: under ``torch.device("cuda")`` all inputs are made there, of other numbers."""
    return torch.Generator(torch.get_default_device()).manual_seed(zlib.crc32(name.encode()))


def normal(name: str, *size: int) -> torch.Tensor:
    """Standard normal fp32 numbers, the same for the same name and size."""
    return torch.randn(*size, generator=_generator(name))


def activations(shape: Shape, name: Literal["q", "k", "v"], tokens: int | None = None) -> torch.Tensor:
    """q ``[T, H, D]``, k ``[T, Hk, D]`` or v ``[T, Hk, V]`` in the activation dtype."""
    heads = shape.heads if name == "q" else shape.kv_heads
    dim = shape.v_head_dim if name == "v" else shape.head_dim
    return normal(name, shape.tokens if tokens is None else tokens, heads, dim).to(shape.dtype)


_SCALES = {"k": 0.03, "v": 0.07, "q": 0.05, "latent": 0.04, "rope": 0.04}  # neither 1 nor powers of two


def scale_for(encoding: str, field: str) -> torch.Tensor | None:
    """The scale operand f32 [2] of a field in an encoding or codec; None where it takes none."""
    codec = CODECS.get(encoding) or codec_of("example", encoding, field)
    return scale_operand(codec.name, _SCALES[field]) if codec.factor else None


def table(shape: Shape) -> torch.Tensor:
    """A rope table f32 ``[M, R]`` = [cos | sin]."""
    frequencies = 10000.0 ** -(torch.arange(0, shape.rope_dim, 2, dtype=torch.float64) / shape.rope_dim)
    angles = torch.arange(shape.positions)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], 1).float()


def page_table(shape: Shape) -> torch.Tensor:
    """Page ids int32 ``[B, W]``, shuffled; -1 behind the last page of a sequence, one column of it at least."""
    ids = torch.randperm(sum(shape.pages) + shape.spare_pages, generator=_generator("pages")).int()
    entries = torch.full((len(shape.own), max(shape.pages) + 1), -1, dtype=torch.int32)
    for row, held in zip(entries, ids.split([*shape.pages, shape.spare_pages]), strict=False):
        row[: len(held)] = held
    return entries


def lengths(shape: Shape) -> torch.Tensor:
    """Lengths after this step int32 ``[B]``."""
    return torch.tensor(shape.lengths, dtype=torch.int32)


def committed(shape: Shape) -> torch.Tensor:
    """Committed lengths int32 ``[B]``."""
    return torch.tensor(shape.committed, dtype=torch.int32)


def query_starts(shape: Shape) -> torch.Tensor:
    """First token of each sequence in T, and the end, int32 ``[B+1]``."""
    return torch.tensor([0, *shape.own]).cumsum(0).int()


def sequence_ids(shape: Shape) -> torch.Tensor:
    """The sequence of each token int32 ``[T]``; -1 for padding."""
    ids = [b for b, own in enumerate(shape.own) for _ in range(own)]
    return torch.tensor(ids + [-1] * shape.padding, dtype=torch.int32)


def positions(shape: Shape) -> torch.Tensor:
    """The position of each token int32 ``[T]``; 0 for padding."""
    own = [p for c, n in zip(shape.committed, shape.own, strict=True) for p in range(c, c + n)]
    return torch.tensor(own + [0] * shape.padding, dtype=torch.int32)


def rows(shape: Shape) -> torch.Tensor:
    """The write row of each token int32 ``[T]``; -1 for padding."""
    sequence, position = sequence_ids(shape).long(), positions(shape)
    page = page_table(shape)[sequence, (position // shape.tokens_per_page).long()]
    return torch.where(sequence < 0, -1, page * shape.tokens_per_page + position % shape.tokens_per_page).int()


def empty_pool(shape: Shape) -> torch.Tensor:
    """A pool uint8 ``[P, page_bytes]`` full of 0xFF, NaN in every encoding."""
    pages = sum(shape.pages) + shape.spare_pages
    return torch.full((pages, page_bytes(shape)), 0xFF, dtype=torch.uint8)


def page_bytes(shape: Shape) -> int:
    """Bytes of a page."""
    return _row(shape).layout(shape.tokens_per_page).page_bytes


def _row(shape: Shape) -> RowFormat:
    fields = row_fields(KV, (shape.kv_heads,) * 2, (shape.head_dim, shape.v_head_dim))
    return row_format("example", shape.encoding, fields)


def planes(shape: Shape) -> list[torch.Tensor]:
    """Encoded K and V of this step's tokens, in page order."""
    scales = [scale_for(shape.encoding, "k"), scale_for(shape.encoding, "v")]
    return _row(shape).encode([activations(shape, "k"), activations(shape, "v")], scales)


def whole(shape: Shape) -> Shape:
    """The step that gives every sequence all of its tokens at once."""
    return replace(shape, committed=(0,) * len(shape.own), own=shape.lengths, padding=0)


def pool(shape: Shape) -> torch.Tensor:
    """A pool with random K and V in every row that a sequence holds after this step and 0xFF in all others."""
    filled, every = empty_pool(shape), whole(shape)
    write_planes(filled, planes(every), rows(every), _row(shape).layout(shape.tokens_per_page))
    return filled
