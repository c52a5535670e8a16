"""fp8: e4m3 under one scale a field."""

from kvc.ops.codecs.fp8.reference import E4M3_MAX, decode, encode, factor

__all__ = ["E4M3_MAX", "decode", "encode", "factor"]
