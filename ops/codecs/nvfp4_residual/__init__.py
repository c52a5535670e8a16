"""nvfp4_residual: nvfp4, and the nvfp4 of what that leaves."""

from kvc.ops.codecs.nvfp4_residual.reference import decode, encode

__all__ = ["decode", "encode"]
