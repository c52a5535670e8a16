"""Codes 5xx: the runtime."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {}
