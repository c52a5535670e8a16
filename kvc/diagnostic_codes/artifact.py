"""Codes 4xx: artifacts."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {}
