"""`kvc schema`."""

import sys
from typing import Annotated

import typer

from kvc.specs.schema import SCHEMA_FILE, schema_text


def schema(
    check: Annotated[bool, typer.Option("--check", help="compare with the file in the repository instead")] = False,
    write: Annotated[bool, typer.Option("--write", help="update the file in the repository instead")] = False,
) -> int:
    """Print the JSON Schema of spec files, as editors use it.

    Exit code 1: the file in the repository is not current (with --check).
    """
    if check and write:
        raise typer.BadParameter("give --check or --write")
    if check:
        return _compare()
    if write:
        SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    else:
        print(schema_text(), end="")
    return 0


def _compare() -> int:
    current = SCHEMA_FILE.is_file() and SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()
    if not current:
        print(f"{SCHEMA_FILE.name} is not current: run `kvc schema --write`", file=sys.stderr)
    return 0 if current else 1
