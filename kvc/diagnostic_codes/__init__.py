"""Every code that kvc can report, by number range, for ``kvc explain``.

One file a range; a code's entry is read by ``kvc explain`` alone, so nothing here is imported on the way to a result.
"""

from kvc.diagnostic_codes import (
    artifact,
    compiler_passes,
    compiling,
    importing,
    mixed_caches,
    models,
    op_calls,
    planning,
    running,
    spec_checks,
    spec_file,
    staging,
)
from kvc.diagnostic_codes.code import Code

__all__ = ["CODES", "Code"]

_RANGES = (
    spec_file,
    spec_checks,
    mixed_caches,
    staging,
    importing,
    planning,
    compiling,
    compiler_passes,
    artifact,
    running,
    op_calls,
    models,
)
CODES: dict[str, Code] = {name: code for module in _RANGES for name, code in module.CODES.items()}
