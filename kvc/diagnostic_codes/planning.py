"""Codes 2xx: planning the memory."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {}
