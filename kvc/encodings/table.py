"""The encodings as data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PartFormat:
    """One stored part of a field: its values (`data`) or its block scales (`scales`).

    ``bits`` a stored element, ``group`` values share one stored element (1 for data, the block size for scales).
    """

    name: str
    dtype: str
    bits: int
    group: int = 1

    def row_bytes(self, width: int) -> int:
        """Bytes of one token's part for a field of ``width`` values; ``width`` must divide into groups and bytes."""
        elements, rest = divmod(width, self.group)
        size, odd_bits = divmod(elements * self.bits, 8)
        if rest or odd_bits:
            raise ValueError(f"{width} values do not divide into groups of {self.group} of {self.bits} bits")
        return size


@dataclass(frozen=True)
class Encoding:
    """How every field of a row is stored.

    ``codec`` names the rule in DESIGN section 7 and the folder in `kvc.ops.codecs`; ``scale`` says whether a field
    needs a scale operand (`field`: one for K and one for V a layer) or none.
    """

    name: str
    codec: str
    parts: tuple[PartFormat, ...]
    scale: Literal["none", "field"]
    summary: str


def _plain(name: str, dtype: str, bits: int, summary: str) -> Encoding:
    return Encoding(name, name, (PartFormat("data", dtype, bits),), "none", summary)


_TABLE = (
    _plain("fp32", "float32", 32, "IEEE single, for parity and debugging"),
    _plain("bf16", "bfloat16", 16, "bfloat16"),
    Encoding("fp8", "fp8", (PartFormat("data", "e4m3", 8),), "field", "e4m3, one scale for K and one for V a layer"),
)
ENCODINGS: dict[str, Encoding] = {encoding.name: encoding for encoding in _TABLE}
