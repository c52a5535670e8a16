"""What is going on, on stderr: a spinner and bars on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]
Advance = Callable[[int], None]


@contextmanager
def spinner() -> Iterator[Say]:
    """A function that says what is going on."""
    if not sys.stderr.isatty():
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


@contextmanager
def bar(what: str, total: int) -> Iterator[Advance]:
    """A function told how much more is done: a bar with the time left, or a line at every tenth."""
    if not sys.stderr.isatty():
        yield _Lines(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda more: progress.advance(task, more)


class _Lines:
    """A line whenever another tenth is done."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0

    def __call__(self, more: int) -> None:
        before, self.done = self.done, self.done + more
        if before * 10 // self.total < self.done * 10 // self.total:
            print(f"{self.what}: {self.done:,} of {self.total:,} tokens", file=sys.stderr, flush=True)
