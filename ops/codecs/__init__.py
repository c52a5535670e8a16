"""How values become bytes and back: the codecs as one table, one folder a codec.

A codec turns values ``[..., dim]`` into planes ``uint8 [..., row_bytes]``, one a part of its encoding (data, block
scales), and back. The ops `quantize_<codec>` and `dequantize_<codec>` are generated from the table.
"""

from kvc.ops.codecs.rows import INDEX, KV, MLA, RowFormat, row_fields, row_format
from kvc.ops.codecs.table import CODECS, Codec, codec_named, codec_of, scale_operand

__all__ = [
    "CODECS",
    "INDEX",
    "KV",
    "MLA",
    "Codec",
    "RowFormat",
    "codec_named",
    "codec_of",
    "row_fields",
    "row_format",
    "scale_operand",
]
