"""`kvc bench`: how close every case comes to what the GPU can do, and how it compares with its peer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvc.report.bench_rows import Row
from kvc.report.figure import write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"copy": "#4477aa", "bf16": "#ee6677", "fp8": "#aa3377"}
_MEANING = {"copy": "of a copy's bytes a second", "bf16": "of a bf16 product's rate", "fp8": "of an fp8 product's rate"}
_INCHES_A_ROW = 0.24


def write_bench_plot(path: Path, rows: Sequence[Row]) -> None:
    """A bar a case, as long as its fraction of the measured ceiling; the peer's ratio is written beside it."""
    height = 1.2 + _INCHES_A_ROW * len(rows)
    write_figure(path, (9, height), lambda figure: _draw(figure, rows))


def _draw(figure: "Figure", rows: Sequence[Row]) -> None:
    axes = figure.add_subplot()
    places = range(len(rows))
    axes.barh(places, [row.fraction for row in rows], color=[_COLOURS.get(row.bound, "#bbbbbb") for row in rows])
    for place, row in zip(places, rows, strict=True):
        axes.text(row.fraction + 0.01, place, _note(row), va="center", fontsize=7)
    axes.set_yticks(places, [f"{row.op}: {row.case}" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.axvline(1, color="black", linewidth=0.6)
    axes.set_xlabel("fraction of the measured ceiling")
    axes.set_title(f"{rows[0].device}, torch {rows[0].torch}, triton {rows[0].triton or 'absent'}", fontsize=9)
    bounds = sorted({row.bound for row in rows} & _COLOURS.keys())
    for bound in bounds:
        axes.barh([0], [0], color=_COLOURS[bound], label=_MEANING[bound])
    if bounds:
        axes.legend(loc="lower right", fontsize=7)


def _note(row: Row) -> str:
    took = f"{row.median_us:,.1f} us"
    return f"{took}, {row.peer_ratio:.2f} x {row.peer}" if row.peer else took
