"""Aligned text tables that look the same on a terminal and in a pipe."""

from collections.abc import Iterable, Sequence

GAP = "  "


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their longest cell; a column of numbers is right-aligned, ints get thousands separators."""
    body = [list(row) for row in rows]
    columns = [_column(title, cells) for title, cells in zip(header, zip(*body, strict=True), strict=True)]
    return "\n".join(GAP.join(line).rstrip() for line in zip(*columns, strict=True))


def _column(title: str, cells: Sequence[object]) -> list[str]:
    texts = [title, *map(cell, cells)]
    width = max(map(len, texts))
    numeric = all(isinstance(value, int) or value is None for value in cells)
    return [text.rjust(width) if numeric else text.ljust(width) for text in texts]


def cell(value: object) -> str:
    """One value as text: `-` for None, thousands separators in ints."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def indent(text: str, by: str = GAP) -> str:
    """Every line of ``text`` moved to the right."""
    return "\n".join(by + line for line in text.splitlines())
