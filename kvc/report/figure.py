"""Figures as files. Needs the extra ``plot``.

matplotlib is imported when something is drawn; figures are made without pyplot, so no window system and no state of
the process is touched. Equal data gives equal files.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from kvc.diagnostics import Source, fail
from kvc.report.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100
# Formats by extension, with the metadata that would tell when a file was made.
_FORMATS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_STYLE = {
    "font.size": 9,
    "text.parse_math": False,
    "svg.hashsalt": "kvc",
    "hatch.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def check_plot_path(path: Path) -> None:
    """Raise KvcError (KVC208) unless ``path`` ends in a format that can be drawn."""
    if path.suffix.lower() not in _FORMATS:
        formats = ", ".join(_FORMATS)
        raise fail("KVC208", f"`{path.suffix or path.name}` is no format of a plot", help=f"end the name in {formats}")


def write_figure(path: Path, inches: tuple[float, float], draw: Callable[["Figure"], None]) -> None:
    """Draw to ``path``, whole or not at all; the extension is its format.

    Raises KvcError: KVC208 for another extension, KVC209 without matplotlib, KVC210 where the file cannot be written.
    """
    check_plot_path(path)
    content = _render(path.suffix.lower(), inches, draw)
    try:
        write_whole(path, content)
    except OSError as error:
        raise fail(
            "KVC210", f"cannot write: {error.strerror}", source=Source(str(path)), help="choose another place"
        ) from error


def _render(suffix: str, inches: tuple[float, float], draw: Callable[["Figure"], None]) -> bytes:
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise fail("KVC209", "drawing a plot needs matplotlib", help="pip install 'kvc[plot]'") from error
    stream = BytesIO()
    with matplotlib.style.context(["default", _STYLE]):
        figure = Figure(figsize=inches, dpi=_DPI, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        draw(figure)
        figure.savefig(stream, format=suffix[1:], metadata=_FORMATS[suffix])
    return stream.getvalue()
