"""`kvc check`."""

from typing import Annotated

import typer

from kvc.cli.errors import OutputFormat, print_findings
from kvc.diagnostics import Diagnostic, KvcError
from kvc.specs import load_spec


def check(
    specs: Annotated[list[str], typer.Argument(metavar="SPEC", help="files, or names of the library")],
    output_format: Annotated[OutputFormat, typer.Option(help="how findings are printed")] = OutputFormat.text,
) -> int:
    """Check spec files without compiling them.

    Exit code 0: all are valid, notes or not; 1: there are findings.
    """
    found = [_findings(spec) for spec in specs]
    findings = [finding for of_one in found for finding in of_one]
    print_findings(findings, output_format)
    bad = sum(any(finding.severity == "error" for finding in of_one) for of_one in found)
    if output_format is OutputFormat.text:
        print(_summary(len(specs), bad, findings))
    return 1 if bad else 0


def _findings(spec: str) -> tuple[Diagnostic, ...]:
    try:
        return load_spec(spec).notes
    except KvcError as error:
        return error.diagnostics


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _summary(specs: int, bad: int, found: list[Diagnostic]) -> str:
    notes = sum(finding.severity == "note" for finding in found)
    errors = len(found) - notes
    where = f"{_count(errors, 'finding')} in {_count(bad, 'spec')}" if errors else "no findings"
    noted = f", {_count(notes, 'note')}" if notes else ""
    more = " `kvc explain CODE` says more." if found else ""
    return f"{_count(specs, 'spec')} checked: {where}{noted}.{more}"
