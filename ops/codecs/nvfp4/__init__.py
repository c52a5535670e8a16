"""nvfp4: E2M1, two a byte, under an e4m3 scale per 16 and one global scale a field."""

from kvc.ops.codecs.nvfp4.reference import MAX, decode, encode, factor

__all__ = ["MAX", "decode", "encode", "factor"]
