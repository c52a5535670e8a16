"""Findings: what kvc says about an input it cannot take, and the exception that carries them.

The lowest layer: no imports from kvc, torch or pydantic.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Severity = Literal["error", "note"]


@dataclass(frozen=True)
class Source:
    """A place in a file, 1-based line and column; ``path`` is as the user gave it."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One finding.

    ``code`` is stable (`KVC012`) and explained by ``kvc explain``; ``path`` is the place inside the document
    (`model.layers[0].heads`); ``help`` names the nearest thing that works.
    """

    code: str
    message: str
    source: Source | None = None
    path: str = ""
    help: str = ""
    severity: Severity = "error"

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data, keys as in ``kvc check --output-format json``."""
        flat = asdict(self.source) if self.source else {"path": None, "line": None, "column": None}
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "file": flat["path"],
            "line": flat["line"],
            "column": flat["column"],
            "path": self.path,
            "help": self.help,
        }


class KvcError(Exception):
    """Bad input or an impossible request; carries every finding, in file order."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = found
        super().__init__("\n".join(map(_line, found)))

    def at(self, place: str) -> "KvcError":
        """The same findings, which say at the end where that was."""
        return KvcError(replace(found, message=f"{found.message}, in {place}") for found in self.diagnostics)


def _line(found: Diagnostic) -> str:
    """A finding as a traceback shows it, with its hint."""
    line = f"{found.source or ''} {found.code} {found.message}".strip()
    return f"{line} (help: {found.help})" if found.help else line


def fail(code: str, message: str, *, help: str = "", source: Source | None = None, path: str = "") -> KvcError:
    """Build the exception for a single finding: ``raise fail("KVC301", ...)``."""
    return KvcError(Diagnostic(code, message, source, path, help))
