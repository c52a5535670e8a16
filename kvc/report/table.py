"""Aligned text tables that look the same on a terminal and in a pipe."""

from collections.abc import Iterable, Sequence

GAP = "  "


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their longest cell, columns of numbers right-aligned; at least one row."""
    columns = [_column(title, cells) for title, cells in zip(header, zip(*rows, strict=True), strict=True)]
    return "\n".join(GAP.join(line).rstrip() for line in zip(*columns, strict=True))


def _column(title: str, cells: Sequence[object]) -> list[str]:
    texts = [title, *map(cell, cells)]
    width = max(map(len, texts))
    numeric = any(not isinstance(value, str) for value in cells)
    return [text.rjust(width) if numeric else text.ljust(width) for text in texts]


def cell(value: object) -> str:
    """One value as text: `-` for None, thousands separators in integers."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
