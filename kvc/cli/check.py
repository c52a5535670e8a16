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

    Exit code 0: all are valid; 1: there are findings.
    """
    found = [_findings(spec) for spec in specs]
    findings = [finding for of_one in found for finding in of_one]
    print_findings(findings, output_format)
    if output_format is OutputFormat.text:
        print(_summary(len(specs), sum(map(bool, found)), len(findings)))
    return 1 if findings else 0


def _findings(spec: str) -> tuple[Diagnostic, ...]:
    try:
        load_spec(spec)
    except KvcError as error:
        return error.diagnostics
    return ()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _summary(specs: int, bad: int, findings: int) -> str:
    if not findings:
        return f"{_count(specs, 'spec')} checked: no findings."
    where = f"{_count(findings, 'finding')} in {_count(bad, 'spec')}"
    return f"{_count(specs, 'spec')} checked: {where}. `kvc explain CODE` says more."
