"""The command line: one file a command, imported when it is called.

A command is a function in a file of the same name that returns its exit code (None is 0), and a line in `COMMANDS`.
Exit codes: 0 ok, 1 findings or a difference, 2 usage or internal error.
"""

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import kvc
from kvc.cli.guard import guarded

# Command -> its line in `kvc --help`.
COMMANDS: dict[str, str] = {
    "init": "write a spec from the config.json of a model",
    "check": "check spec files; every finding has a file, line, column, code and hint",
    "plan": "show where every byte of the cache goes, and how many tokens fit",
    "compile": "compile a spec to an artifact that engines load and replay",
    "inspect": "show what an artifact holds",
    "run": "generate text with a real model on the compiled cache",
    "sweep": "measure KL divergence and perplexity against bytes a token, over encodings and twins",
    "bench": "time the ops on a device, beside what it reaches and what other libraries take",
    "diff": "compare two specs or artifacts: memory and graphs",
    "explain": "explain a diagnostic code, or list all codes",
    "schema": "print the JSON Schema of spec files",
}

_PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}


def load_command(name: str) -> Any:
    """The command of ``kvc.cli.<name>``, ready to run."""
    function = guarded(getattr(import_module(f"kvc.cli.{name}"), name))
    app = typer.Typer(**_PLAIN)
    app.command(name, help=function.__doc__)(function)
    return typer.main.get_command(app)


class LazyGroup(TyperGroup):
    """Commands by name from `COMMANDS`; help needs none of their modules."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import one command."""
        return guarded(load_command)(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table as it is."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"kvc {kvc.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """A compiler for the KV cache of language models."""


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):  # a file name may hold what the terminal cannot show
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app = typer.Typer(cls=LazyGroup, no_args_is_help=True, **_PLAIN)
    app.callback()(_root)
    guarded(typer.main.get_command(app))(prog_name="kvc", args=sys.argv[1:])
