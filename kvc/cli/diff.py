"""`kvc diff`."""

from typing import TYPE_CHECKING, Annotated

import typer

from kvc.report.json_text import json_text

if TYPE_CHECKING:  # the import costs torch, which help and usage errors do without
    from kvc.artifact import Artifact


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="a spec or an artifact")],
    after: Annotated[str, typer.Argument(metavar="B", help="a spec or an artifact")],
    as_json: Annotated[bool, typer.Option("--json", help="print the differences as JSON")] = False,
) -> int:
    """Compare two specs or artifacts: memory plan and graphs.

    Specs are compiled in memory. Exit code 0: equal; 1: different.
    """
    from kvc.report.program_diff import compare

    found = compare(_artifact(before), _artifact(after))
    print(json_text(found.to_json()) if as_json else found.text())
    return 0 if found.equal else 1


def _artifact(path: str) -> "Artifact":
    from kvc.artifact import is_artifact, read_artifact
    from kvc.compiler import compile_spec

    return read_artifact(path) if is_artifact(path) else compile_spec(path).artifact
