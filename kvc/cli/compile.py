"""`kvc compile`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvc.cli.errors import print_findings
from kvc.cli.options import DeviceOption, device_bytes


def compile(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="a file, or a name of the library")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="directory of the artifact")],
    force: Annotated[bool, typer.Option("--force", help="replace an existing artifact")] = False,
    print_after: Annotated[str | None, typer.Option(metavar="PASS|all", help="print every graph after a pass")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="say where passes did not fire, and why")] = False,
    device: DeviceOption = None,
) -> None:
    """Compile a spec to an artifact that engines load and replay.

    Prints one line a pass. Nothing is written unless everything succeeds.
    """
    from kvc.artifact import check_replaceable
    from kvc.compiler import compile_spec
    from kvc.specs import load_spec

    check_replaceable(output, force)
    loaded = load_spec(spec)
    print_findings(loaded.notes, file=sys.stderr)
    compiled = compile_spec(
        loaded,
        device_bytes=device_bytes(device),
        print_after=print_after,
        printer=lambda name, text: print(f"-- after {name}\n{text}"),
    )
    print("\n".join(compiled.log.lines(explain)))
    compiled.write(output, force)
    graphs = compiled.artifact.program.named_graphs()
    print(f"wrote {output}: {len(graphs)} graphs for {len(compiled.artifact.program.bindings)} layers")
