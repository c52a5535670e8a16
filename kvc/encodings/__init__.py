"""How one row of a cache is stored: pure data (fields, planes, dtypes, sizes, rounding) and the page layout it gives.

A new encoding is one entry in `table.py` (and, for new arithmetic, one codec folder in `kvc.ops.codecs`).
"""

from kvc.encodings.layout import PLANE_ALIGNMENT, Field, PageLayout, Plane, page_layout
from kvc.encodings.table import ENCODINGS, Encoding, PartFormat

__all__ = ["ENCODINGS", "PLANE_ALIGNMENT", "Encoding", "Field", "PageLayout", "PartFormat", "Plane", "page_layout"]
