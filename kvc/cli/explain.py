"""`kvc explain`."""

import textwrap
from typing import Annotated

import typer

from kvc.diagnostic_codes import CODES, Code


def explain(
    code: Annotated[str | None, typer.Argument(help="a code as printed with a finding, or its number")] = None,
) -> None:
    """Explain a diagnostic code, or list all codes."""
    if code is None:
        print("\n".join(f"{name}  {entry.title}" for name, entry in sorted(CODES.items())))
        return
    name = f"KVC{int(code):03}" if code.isascii() and code.isdigit() else code.upper()
    if name not in CODES:
        raise typer.BadParameter(f"there is no code {code}; `kvc explain` lists all of them")
    print(_page(name, CODES[name]))


def _page(name: str, code: Code) -> str:
    text = f"{name}: {code.title}\n\n{textwrap.fill(code.explanation, 100)}"
    return f"{text}\n\nRefused, for example:\n{textwrap.indent(code.example, '    ')}" if code.example else text
