"""How one row of a cache is stored: pure data (fields, planes, dtypes, sizes, rounding) and the page layout it gives.

A new encoding is one entry in `table.py` (and, for new arithmetic, one codec folder in `kvc.ops.codecs`).
"""

from kvc.encodings.layout import (
    PLANE_ALIGNMENT,
    STATE_DTYPES,
    Field,
    PageLayout,
    Plane,
    StateTensor,
    page_layout,
    state_layout,
)
from kvc.encodings.table import ENCODINGS, MIXED, Encoding, PartFormat

__all__ = [
    "ENCODINGS",
    "MIXED",
    "PLANE_ALIGNMENT",
    "STATE_DTYPES",
    "Encoding",
    "Field",
    "PageLayout",
    "PartFormat",
    "Plane",
    "StateTensor",
    "page_layout",
    "state_layout",
]
