"""Numbers that specs write as text: byte sizes (`139GiB`) and layer ranges (`0-2,60`)."""

import re
from fractions import Fraction
from itertools import pairwise

from kvc.specs.suggestions import shortened

UNITS: dict[str, int] = {"B": 1}
UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate(("k", "M", "G", "T"), 1)}
UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), 1)}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-z]*)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class BadValue(ValueError):
    """Text that cannot be read; ``help`` says what to write."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__(message)
        self.help = help


def _unit_help(number: str, unit: str) -> str:
    spelled = [name for name in UNITS if name.lower() == unit.lower()]
    letter = unit[:1].upper()
    near = spelled or [name for name in UNITS if letter and name.upper().startswith(letter)] or ["GiB", "GB"]
    return "write " + " or ".join(f"{number}{name}" for name in near)


def parse_size(text: str) -> int:
    """Bytes of `139GiB`, `16GB`, `1.5 TiB` or `4096`; exact (GB = 10**9, GiB = 2**30). Raises BadValue."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise BadValue(f"`{shortened(text)}` is not a size in bytes", "write a number and a unit: 139GiB or 16GB")
    number, unit = found.groups()
    if unit and unit not in UNITS:
        raise BadValue(f"`{shortened(unit)}` is not a unit of bytes", _unit_help(number, unit))
    size = Fraction(number) * UNITS[unit or "B"]
    if size.denominator != 1:
        raise BadValue(f"`{text}` is not a whole number of bytes", "write fewer decimals, or the number of bytes")
    return int(size)


def _range(part: str, text: str) -> range:
    found = _RANGE.fullmatch(part.strip())
    if not found:
        raise BadValue(f"`{shortened(text)}` is not a list of layers", 'write numbers and ranges: "0-2,60"')
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise BadValue(f"the range `{part.strip()}` runs backwards", f'write "{last}-{first}"')
    return range(first, last + 1)


def parse_layers(text: str) -> tuple[range, ...]:
    """Ranges of `0-2,60`, both ends included, ascending and apart; nothing is expanded. Raises BadValue."""
    ranges = tuple(_range(part, text) for part in text.split(","))
    for before, after in pairwise(ranges):
        if after.start < before.stop:
            raise BadValue(
                f"`{shortened(text)}` does not ascend, or names a layer twice", "sort the layers and name each once"
            )
    return ranges
