"""`kvc plan`."""

from typing import Annotated

import typer

from kvc.diagnostics import fail
from kvc.plan import make_plan
from kvc.report.json_text import json_text
from kvc.report.plan_table import plan_table
from kvc.specs import load_spec
from kvc.specs.sizes import BadValue, parse_size


def plan(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="a file, or a name of the library")],
    device: Annotated[
        str | None, typer.Option(metavar="SIZE", help="memory of the device, such as 139GiB, in place of the spec's")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the plan as JSON")] = False,
) -> None:
    """Show where every byte of a spec's cache goes, and how many tokens fit."""
    made = make_plan(load_spec(spec), None if device is None else _device_bytes(device))
    print(json_text(made.to_json()) if as_json else plan_table(made))


def _device_bytes(text: str) -> int:
    try:
        return parse_size(text)
    except BadValue as error:
        raise fail("KVC204", f"--device: {error}", help=error.help) from error
