"""Findings as text with the source line, as JSON, and as GitHub annotations."""

import json
import re
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TextIO

from kvc.diagnostics import Diagnostic, Source
from kvc.report.terminal import shows_colour

_MAX_READ = 1 << 20  # bytes of a file that may be searched for the cited line
_MAX_WIDTH = 160  # columns of a cited line
_TOKEN = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s:,\[\]{}#]+")
_COLOURS = {"error": "31;1", "note": "34;1", "help": "36", "gutter": "34", "place": "1"}


class OutputFormat(StrEnum):
    """How findings are printed."""

    text = "text"
    json = "json"
    github = "github"


Paint = Callable[[str, str], str]


def _painter(file: TextIO) -> Paint:
    """Colours for terminals; none in pipes, under NO_COLOR or on dumb terminals."""
    if not shows_colour(file):
        return lambda text, kind: text
    return lambda text, kind: f"\033[{_COLOURS[kind]}m{text}\033[0m"


@cache
def _lines(path: str) -> tuple[str, ...]:
    """Lines of a cited file; none where it cannot be read again (a pipe, a name inside a package)."""
    try:
        if not Path(path).is_file():
            return ()
        with open(path, "rb") as stream:
            return tuple(re.split("\r\n|[\r\n\x85\u2028\u2029]", stream.read(_MAX_READ).decode("utf-8-sig")))
    except (OSError, ValueError):
        return ()


def _cited_line(source: Source) -> str:
    lines = _lines(source.path)
    line = lines[source.line - 1] if source.line <= len(lines) else ""
    return line if all(character.isprintable() or character == "\t" for character in line) else ""


def _excerpt(source: Source, paint: Paint, severity: str) -> list[str]:
    """The cited line with a caret under the place; empty where there is nothing to show."""
    line, start = _cited_line(source), source.column - 1
    if not line.strip() or start > len(line):
        return []
    cut = max(0, start - _MAX_WIDTH // 2)
    shown = line[cut : cut + _MAX_WIDTH]
    token = _TOKEN.match(line, start)
    width = min(len(token[0]) if token else 1, _MAX_WIDTH - (start - cut))
    indent = "".join("\t" if character == "\t" else " " for character in line[cut:start])
    number = str(source.line)
    margin = " " * len(number)
    return [
        paint(f"{margin} |", "gutter"),
        paint(f"{number} |", "gutter") + f" {shown}",
        paint(f"{margin} |", "gutter") + f" {indent}" + paint("^" * max(width, 1), severity),
    ]


def render_text(found: Diagnostic, paint: Paint = lambda text, kind: text) -> str:
    """One finding: place, code, message; the source line with a caret; the hint."""
    place = paint(f"{found.source}: ", "place") if found.source else ""
    kind = "note: " if found.severity == "note" else ""
    lines = [f"{place}{paint(found.code, found.severity)} {kind}{found.message}"]
    excerpt = _excerpt(found.source, paint, found.severity) if found.source else []
    lines += excerpt
    if found.help:
        margin = " " * (len(str(found.source.line)) + 1 if excerpt and found.source else 2)
        lines.append(f"{margin}{paint('= help:', 'help')} {found.help}")
    return "\n".join(lines)


def _escaped(text: str, extra: str = "") -> str:
    return "".join(f"%{ord(character):02X}" if character in f"%\r\n{extra}" else character for character in text)


def render_github(found: Diagnostic) -> str:
    """One finding as a workflow command, shown by GitHub beside the line."""
    level = "error" if found.severity == "error" else "notice"
    values = {"title": found.code}
    if found.source:
        place = found.source
        values = {"file": place.path, "line": str(place.line), "col": str(place.column), **values}
    properties = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in values.items())
    message = f"{found.message} ({found.help})" if found.help else found.message
    return f"::{level} {properties}::{_escaped(message)}"


def print_findings(
    findings: Iterable[Diagnostic], output_format: OutputFormat = OutputFormat.text, file: TextIO | None = None
) -> None:
    """Print findings to ``file`` (stdout)."""
    stream = sys.stdout if file is None else file
    if output_format is OutputFormat.json:
        print(json.dumps([found.to_json() for found in findings], indent=2, ensure_ascii=False), file=stream)
        return
    paint = _painter(stream)
    for found in findings:
        text = render_text(found, paint) + "\n" if output_format is OutputFormat.text else render_github(found)
        print(text, file=stream)
