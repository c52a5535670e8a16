"""A device's memory as one line: which layer groups fill it, what is fixed, reserved and free.

Every segment has a character of its own, so the bar reads the same without colours, in a pipe and in a log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TextIO

from kvc.plan.shares import Division, divide_memory
from kvc.plan.types import Plan
from kvc.report.table import table
from kvc.report.terminal import can_encode, shows_colour

WIDTH = 80


@dataclass(frozen=True)
class BarStyle:
    """Characters of the segments, and the numbers of ANSI colours (none: plain text)."""

    growing: str
    fixed: str
    idle: str
    reserve: str
    free: str
    colours: tuple[int, ...] = ()

    @property
    def characters(self) -> str:
        """Every character that a bar in this style may hold."""
        return self.growing + self.fixed + self.idle + self.reserve + self.free


BLOCKS = BarStyle(growing="█▓▒░▚", fixed="#", idle="-", reserve="/", free="·")
ASCII = BarStyle(growing="=+o%x", fixed="#", idle="-", reserve="/", free=".")
_COLOURS = (34, 33, 36, 35, 32)


@dataclass(frozen=True)
class Segment:
    """A stretch of the bar."""

    character: str
    name: str
    nbytes: int
    meaning: str
    colour: int | None = None


def style_for(stream: TextIO) -> BarStyle:
    """Blocks where the stream can encode them, else ASCII; colours on terminals that have them."""
    style = BLOCKS if can_encode(stream, BLOCKS.characters) else ASCII
    return BarStyle(**vars(style) | {"colours": _COLOURS}) if shows_colour(stream) else style


def memory_bar(plan: Plan, style: BarStyle = BLOCKS) -> str:
    """The bar, `WIDTH` columns, over its legend; empty where no memory size is known."""
    if plan.capacity is None:
        return ""
    division = divide_memory(plan)
    segments = _segments(plan, division, style)
    sizes = _cells([segment.nbytes for segment in segments], WIDTH - 2)
    bar = "".join(_painted(segment, segment.character * size) for segment, size in zip(segments, sizes, strict=True))
    return f"[{bar}]\n{_legend(segments, division.memory_bytes)}"


def _segments(plan: Plan, division: Division, style: BarStyle) -> list[Segment]:
    rest = (
        Segment(style.fixed, "fixed", division.fixed_bytes, "windows, states, twins"),
        Segment(style.idle, "idle", division.idle_bytes, "slots that no sequence can use"),
        Segment(style.reserve, "reserve", division.reserve_bytes, "not for the cache"),
        Segment(style.free, "free", division.free_bytes, "neither cache nor reserve"),
    )
    return [segment for segment in (*_growing(plan, division, style), *rest) if segment.nbytes]


def _growing(plan: Plan, division: Division, style: BarStyle) -> list[Segment]:
    """A segment a layer group that grows, in plan order; the smallest share one where there are too many."""
    groups = {group.name: group for group in plan.layer_groups}
    largest = sorted(division.growing, key=lambda name: -division.growing[name])
    shown = set(largest if len(largest) <= len(style.growing) else largest[: len(style.growing) - 1])
    rows = [
        (name, nbytes, f"{groups[name].encoding}, {groups[name].coverage}")
        for name, nbytes in division.growing.items()
        if name in shown
    ]
    if others := len(largest) - len(shown):
        nbytes = sum(nbytes for name, nbytes in division.growing.items() if name not in shown)
        rows.append((f"{others} more", nbytes, "smaller groups"))
    colours = style.colours or (None,) * len(rows)
    return [Segment(mark, *row, colour) for mark, row, colour in zip(style.growing, rows, colours, strict=False)]


def _cells(amounts: Sequence[int], width: int) -> list[int]:
    """``width`` cells in proportion to ``amounts``, rounded, at least one where it is not 0; the largest evens out."""
    total = sum(amounts)
    cells = [max(min(amount, 1), round(Fraction(amount * width, total))) for amount in amounts]
    cells[cells.index(max(cells))] += width - sum(cells)
    return cells


def _painted(segment: Segment, text: str) -> str:
    return text if segment.colour is None else f"\033[{segment.colour}m{text}\033[0m"


def _legend(segments: Sequence[Segment], total: int) -> str:
    rows = [
        (segment.character, segment.name, segment.nbytes, _percent(segment.nbytes, total), segment.meaning)
        for segment in segments
    ]
    first, *lines = table(("", "memory", "bytes", "share", "meaning"), rows).splitlines()
    painted = (_painted(segment, line[:1]) + line[1:] for segment, line in zip(segments, lines, strict=True))
    return "\n".join([first, *painted])


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:5.1f} %"
