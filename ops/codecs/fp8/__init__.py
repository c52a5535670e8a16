"""fp8: e4m3 under one scale a field."""

from kvc.ops.codecs.fp8.reference import decode, encode, factor

__all__ = ["decode", "encode", "factor"]
