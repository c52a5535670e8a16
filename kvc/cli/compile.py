"""``kvc compile``."""

from pathlib import Path
from typing import Annotated

import typer


def compile(
    spec: Annotated[str, typer.Argument(help="A spec file or a name of the library.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory of the artifact.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing artifact.")] = False,
    print_after: Annotated[
        str | None, typer.Option("--print-after", metavar="PASS|all", help="Print every graph after a pass.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say where a pass did not fire, and why.")] = False,
    device: Annotated[
        str | None, typer.Option("--device", metavar="SIZE", help="Device memory (139GiB) for the plan's capacity.")
    ] = None,
) -> None:
    """Compile a spec to an artifact that engines load and replay."""
    from kvc.report.compiling import compile_and_report

    compile_and_report(spec, output, force=force, print_after=print_after, explain=explain, device=device)
