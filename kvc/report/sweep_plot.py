"""`kvc sweep`: mean KL against bytes a token, and KL along the text. Needs the extra ``plot``."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvc.report.figure import write_figure
from kvc.report.sweep_results import Row, Stretch
from kvc.report.sweep_table import pareto_front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES = (10.0, 6.0)
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito's
_MARKS = "osD^vPX*"
_LABELS = (((5, 4), "left"), ((-5, -9), "right"))  # of neighbours by turns: above on the right, below on the left
_EXACT = 1e-12  # mean KL below which a cache is the reference's: it has no place on a log scale


def write_tradeoff_plot(rows: Sequence[Row], path: Path) -> None:
    """One mark a configuration: mean KL (log) against bytes a token at the text's length, and the Pareto front."""
    write_figure(path, _INCHES, lambda figure: _draw_tradeoff(figure, rows))


def write_position_plot(rows: Sequence[Row], stretches: Mapping[str, Sequence[Stretch]], path: Path) -> None:
    """KL (log) along the text: every encoding alone, and with the largest twin of each kind."""
    chosen = [row for row in chosen_rows(rows) if row.mean_kl > _EXACT]
    write_figure(path, _INCHES, lambda figure: _draw_positions(figure, chosen, stretches))


def chosen_rows(rows: Sequence[Row]) -> list[Row]:
    """A row of each family: the one whose twin keeps most tokens."""
    largest: dict[str, Row] = {}
    for row in rows:
        best = largest.get(row.family)
        if best is None or (row.first + row.last, row.last) > (best.first + best.last, best.last):
            largest[row.family] = row
    return list(largest.values())


def _draw_tradeoff(figure: "Figure", rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    shown, exact = [row for row in rows if row.mean_kl > _EXACT], [row for row in rows if row.mean_kl <= _EXACT]
    for row in exact:
        axes.axvline(row.effective_bytes_per_token, color="#999999", linestyle=":", label=f"{row.label}: KL 0")
    for number, family in enumerate(dict.fromkeys(row.family for row in shown)):
        _draw_family(axes, number, [row for row in shown if row.family == family])
    front = pareto_front(shown)
    places = ([row.effective_bytes_per_token for row in front], [row.mean_kl for row in front])
    axes.plot(*places, color="#555555", linewidth=1, drawstyle="steps-post", zorder=1, label="Pareto front")
    tokens = f", {rows[0].tokens:,} tokens" if rows else ""
    axes.set_title(f"{rows[0].model if rows else ''}{tokens}; numbers: first/last tokens of the twin")
    axes.set_xlabel("bytes a token (log scale), whole pages of the text")
    _scale_bytes(axes)
    _finish(axes, "mean KL to an fp32 cache, nats")


def _scale_bytes(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(2, subs=(1.0, 1.5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_family(axes: "Axes", number: int, rows: Sequence[Row]) -> None:
    rows = sorted(rows, key=lambda row: (row.effective_bytes_per_token, row.mean_kl))
    sizes, kls = [row.effective_bytes_per_token for row in rows], [row.mean_kl for row in rows]
    axes.scatter(sizes, kls, color=_COLOURS[number % 7], marker=_MARKS[number % 8], label=rows[0].family, zorder=2)
    if rows[0].retain:
        for row, (offset, align) in zip(rows, cycle(_LABELS), strict=False):
            place = (row.effective_bytes_per_token, row.mean_kl)
            style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "ha": align}
            axes.annotate(f"{row.first}/{row.last}", place, offset, **style)


def _draw_positions(figure: "Figure", rows: Sequence[Row], stretches: Mapping[str, Sequence[Stretch]]) -> None:
    axes = figure.subplots()
    for number, row in enumerate(rows):
        middles = [(part.start + part.stop) / 2 for part in stretches[row.label]]
        kls = [max(part.mean_kl, _EXACT) for part in stretches[row.label]]
        axes.plot(middles, kls, color=_COLOURS[number % 7], marker=_MARKS[number % 8], markersize=4, label=row.label)
    for window in sorted({row.first + row.last for row in rows if row.retain}):
        label = f"{window:,} tokens: first and last together"
        axes.axvline(window, color="#999999", linestyle="--", linewidth=1, label=label)
    axes.set_title("KL along the text, mean of each stretch")
    axes.set_xlabel("position in the text, tokens")
    _finish(axes, "KL to an fp32 cache, nats")


def _finish(axes: "Axes", label: str) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda kl, _: f"{kl:g}"))
    axes.set_ylabel(label)
    axes.grid(which="major", color="#DDDDDD", linewidth=0.6)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.11), frameon=False, ncols=4)
