"""`kvc plan`."""

from typing import Annotated

import typer

from kvc.cli.options import DeviceOption, device_bytes
from kvc.plan import make_plan
from kvc.report.json_text import json_text
from kvc.report.plan_table import plan_table
from kvc.specs import load_spec


def plan(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="a file, or a name of the library")],
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the plan as JSON")] = False,
) -> None:
    """Show where every byte of a spec's cache goes, and how many tokens fit."""
    made = make_plan(load_spec(spec), device_bytes(device))
    print(json_text(made.to_json()) if as_json else plan_table(made))
