"""Codes 6xx: models and `kvc run`."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {}
