"""Bytes for people."""

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def format_size(size: int) -> str:
    """``size`` bytes in the largest binary unit that it fills, at most two decimals: `139 GiB`, `2.13 MiB`, `0 B`."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_BINARY) - 1)
    number = f"{size / 1024**power:,.2f}".rstrip("0").rstrip(".") if power else str(size)
    return f"{number} {_BINARY[power]}"
