"""Codes 3xx: lowering and compiler passes."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {}
