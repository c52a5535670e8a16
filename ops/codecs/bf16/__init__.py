"""bf16: the value itself."""

from kvc.ops.codecs.bf16.reference import decode, encode

__all__ = ["decode", "encode"]
