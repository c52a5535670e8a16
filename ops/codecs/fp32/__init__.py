"""fp32: the value itself."""

from kvc.ops.codecs.fp32.reference import decode, encode

__all__ = ["decode", "encode"]
