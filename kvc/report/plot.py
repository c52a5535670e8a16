"""``kvc plan --plot``: where the memory goes, and what a sequence takes as it grows. Needs the extra ``plot``."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvc.report.figure import write_figure
from kvc.report.plot_data import Curve, Stack, Subject, common_length, curves, stacks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GIB = 2**30
_WIDTH, _HEIGHT = 12.0, 6.0  # inches: 1200 x 600 pixels, higher for more specs than have room
_ROOM = 12
# Colours that colour-blind people tell apart (Paul Tol's muted and light ones, Okabe and Ito's for specs).
_KINDS = {
    "block scales": "#DDCC77",
    "index keys": "#999933",
    "windows": "#CC6677",
    "twins": "#117733",
    "recurrent state": "#AA4499",
    "compressor state": "#882255",
    "rounding": "#BBBBBB",
}
_ENCODINGS = ("#332288", "#88CCEE", "#44AA99", "#EE8866", "#4477AA", "#FFAABB")
_SPECS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = "osD^vPX*"  # one more than colours: a spec's pair of them comes again after 56
_HATCH = "////"
_NAME = 24  # characters of a spec's name


def write_plot(subjects: Sequence[Subject], path: Path) -> None:
    """Draw the plans to ``path``, whole or not at all; the extension is its format.

    Raises KvcError: KVC208 for another extension, KVC209 without matplotlib, KVC210 where the file cannot be written.
    """
    height = _HEIGHT + 0.35 * max(0, len(subjects) - _ROOM)
    write_figure(path, (_WIDTH, height), lambda figure: _draw(figure, subjects))


def _draw(figure: "Figure", subjects: Sequence[Subject]) -> None:
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.05})
    names = [_short(subject.plan.name) for subject in subjects]
    _draw_stacks(left, names, stacks(subjects))
    left.set_title(f"Where the memory goes: one sequence of {common_length(subjects):,} tokens")
    _draw_curves(right, curves(subjects))
    right.set_title("One sequence against its length (log scales)")


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def _draw_stacks(axes: "Axes", names: Sequence[str], kinds: Sequence[Stack]) -> None:
    """Lying bars, the first spec on top; fixed bytes are hatched."""
    rows = range(len(names))
    start = [0.0] * len(names)
    for kind, colour in zip(kinds, _colours(kinds), strict=True):
        sizes = [nbytes / _GIB for nbytes in kind.nbytes]
        hatch = _HATCH if kind.fixed else None
        axes.barh(rows, sizes, 0.6, start, label=kind.label, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
        start = [before + size for before, size in zip(start, sizes, strict=True)]
    for row, total in zip(rows, start, strict=True):
        axes.annotate(f"{total:.3g} GiB", (total, row), (4, 0), textcoords="offset points", va="center")
    if any(kind.fixed for kind in kinds):
        axes.bar([0], [0], color="#777777", hatch=_HATCH, edgecolor="white", linewidth=0, label="hatched: fixed")
    margin = max(0.0, (4 - len(names)) / 2) + 0.5  # few bars stay slim
    axes.set(xlim=(0, max(start) * 1.18), ylim=(len(names) - 1 + margin, -margin))  # room for the longest bar's total
    axes.set_yticks(rows, names)
    axes.set_xlabel("GiB, in whole pages")
    _legend_below(axes)


def _colours(kinds: Sequence[Stack]) -> list[str]:
    """A kind of bytes has its colour in every plot; encodings have the next of theirs."""
    encodings = cycle(_ENCODINGS)
    return [_KINDS.get(kind.label) or next(encodings) for kind in kinds]


def _draw_curves(axes: "Axes", found: Sequence[Curve]) -> None:
    """Bytes against tokens; a dashed line is where fixed bytes alone would be."""
    for number, curve in enumerate(found):
        colour, mark = _SPECS[number % len(_SPECS)], _MARKS[number % len(_MARKS)]
        tokens, nbytes = zip(*curve.points, strict=True)
        sizes = [size / _GIB for size in nbytes]
        axes.plot(tokens, sizes, color=colour, marker=mark, markevery=[len(sizes) - 1], label=_short(curve.name))
        if curve.fixed_bytes:
            axes.plot(tokens, [curve.fixed_bytes / _GIB] * len(tokens), color=colour, linestyle="--", linewidth=1)
    if any(curve.fixed_bytes for curve in found):
        axes.plot([], [], color="#555555", linestyle="--", linewidth=1, label="fixed bytes alone")
    _scale(axes)
    _legend_below(axes)


def _scale(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(16))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))  # between few powers of ten only
    axes.set_xlabel("tokens of the sequence; marks: max_seq_len")
    axes.set_ylabel("GiB, in whole pages")
    axes.grid(which="major", color="#DDDDDD", linewidth=0.6)


def _legend_below(axes: "Axes") -> None:
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.11), "frameon": False}
    crowded = len(axes.get_legend_handles_labels()[1]) > 8
    axes.legend(ncols=3, columnspacing=1.2, handlelength=1.8, fontsize=8 if crowded else 9, **place)
