"""Equal layers written once: runs of one layer, and groups of runs that repeat."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kvc.specs.hf.config import Derived

_LONGEST = 32  # runs in a group: more would not be read as a pattern


@dataclass(frozen=True)
class Run:
    """``count`` equal layers."""

    layer: Derived
    count: int


@dataclass(frozen=True)
class Group:
    """Runs that follow each other ``count`` times."""

    runs: tuple[Run, ...]
    count: int


def folded(layers: Sequence[Derived]) -> list[Run | Group]:
    """``layers`` in order, as few entries as a greedy reading finds."""
    numbers = _numbered(layers)
    firsts = {number: layer for number, layer in zip(reversed(numbers), reversed(layers), strict=True)}
    runs = [(number, len(list(equal))) for number, equal in groupby(numbers)]
    return [
        Group(tuple(Run(firsts[number], length) for number, length in pattern), count)
        if len(pattern) > 1
        else Run(firsts[pattern[0][0]], pattern[0][1])
        for pattern, count in _patterns(runs)
    ]


def _numbered(layers: Sequence[Derived]) -> list[int]:
    """A number for every distinct layer."""
    known: dict[str, int] = {}
    return [known.setdefault(repr(layer.value), len(known)) for layer in layers]


_Runs = Sequence[tuple[int, int]]


def _patterns(runs: _Runs) -> Iterator[tuple[_Runs, int]]:
    start = 0
    while start < len(runs):
        length, count = _best(runs, start)
        yield runs[start : start + length], count
        start += length * count


def _best(runs: _Runs, start: int) -> tuple[int, int]:
    """Length and count of the repetition from ``start`` that covers most runs; the shortest of those."""
    best = (1, 1)
    for length in range(2, min(_LONGEST, (len(runs) - start) // 2) + 1):
        count = _times(runs, start, length)
        if count > 1 and length * count > best[0] * best[1]:
            best = (length, count)
    return best


def _times(runs: _Runs, start: int, length: int) -> int:
    """How often the ``length`` runs from ``start`` follow each other."""
    count = 1
    while runs[start + count * length : start + (count + 1) * length] == runs[start : start + length]:
        count += 1
    return count
