"""What every command shares: findings, interrupts and crashes become messages and exit codes."""

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from kvc.cli.errors import print_findings
from kvc.diagnostics import KvcError

FINDINGS = 1
INTERNAL = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
BROKEN_PIPE = 141  # 128 + SIGPIPE


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command``, with whatever it raises turned into a message and an exit code; an int it returns is its code."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            result = command(*arguments, **options)
            if sys.stdout:  # None where the caller closed it
                sys.stdout.flush()
        except KvcError as error:
            print_findings(error.diagnostics, file=sys.stderr)
            sys.exit(FINDINGS)
        except (typer.BadParameter, typer.Exit):  # usage: typer prints it and exits with 2
            raise
        except BrokenPipeError:
            _silence_stdout()
            sys.exit(BROKEN_PIPE)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except Exception as error:
            _report_crash(error)
            sys.exit(INTERNAL)
        return sys.exit(result) if isinstance(result, int) else result

    return run


def _silence_stdout() -> None:
    """Keep the interpreter from flushing into the closed pipe once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_crash(error: Exception) -> None:
    if os.environ.get("KVC_TRACEBACK") == "1":
        traceback.print_exc()
        return
    said = " ".join(str(error).split())[:300]
    print(
        f"kvc: internal error: {type(error).__name__}: {said} (KVC_TRACEBACK=1 shows where)",
        file=sys.stderr,
    )
