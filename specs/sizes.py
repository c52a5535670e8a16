"""Sizes of memory as people write them: `139GiB`, `80 GB`, `4096`. GB = 1e9, GiB = 2^30."""

import re
from fractions import Fraction

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS = {unit.lower(): 1024**power for power, unit in enumerate(_BINARY)}
_UNITS |= {unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb", "pb"), start=1)}
_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_size(text: str | int) -> int:
    """Bytes of a positive size, rounded down to whole ones; a number without a unit is bytes.

    ValueError, with a message for people, for anything else.
    """
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a size: write a number and a unit, such as 139GiB or 80GB")
    number, unit = match.groups()
    if (scale := _UNITS.get(unit.lower() or "b")) is None:
        raise ValueError(f"{unit!r} is not a unit of size: use B, KB, MB, GB, TB or KiB, MiB, GiB, TiB")
    if (size := int(Fraction(number) * scale)) == 0:
        raise ValueError(f"{text!r} is less than one byte")
    return size


def format_size(size: int) -> str:
    """``size`` bytes in the largest binary unit that it fills, at most two decimals: `139 GiB`, `2.13 MiB`, `0 B`."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_BINARY) - 1)
    number = f"{size / 1024**power:.2f}".rstrip("0").rstrip(".") if power else str(size)
    return f"{number} {_BINARY[power]}"
