"""fp8_block: e4m3 under an fp32 scale per 128 values, made when they are stored."""

from kvc.ops.codecs.fp8_block.reference import decode, encode

__all__ = ["decode", "encode"]
