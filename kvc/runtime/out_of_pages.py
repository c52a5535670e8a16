"""The answer of a full cache: what was asked for, what is free, and what a scheduler can do about it."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvc.diagnostics import Diagnostic, KvcError

SequenceId = str | int


@dataclass(frozen=True)
class Shortage:
    """Slots of one pool group: ``needed`` by the refused call beside what its sequences hold, ``free``, ``total``.

    Evictable prefixes count as free.
    """

    needed: int
    free: int
    total: int


@dataclass(frozen=True)
class Holder:
    """A sequence that could be preempted, and the slots that this alone would free in each pool group.

    Pages that it shares with others are not among them.
    """

    id: SequenceId
    slots: Mapping[int, int]


class OutOfPages(KvcError):
    """The free slots do not hold the tokens asked for; nothing has changed.

    ``groups``: pool group -> `Shortage`. ``fitting``: sequence -> tokens, a schedule that succeeds now (the requests
    served in the order given, each with as many of its tokens as still fit; those with none left out). ``holders``: who
    could be preempted, oldest first. ``solvable``: whether the call would succeed with every other sequence gone.
    """

    def __init__(
        self,
        groups: Mapping[int, Shortage],
        fitting: Mapping[SequenceId, int],
        holders: tuple[Holder, ...],
        solvable: bool,
    ) -> None:
        self.groups, self.fitting, self.holders, self.solvable = dict(groups), dict(fitting), holders, solvable
        super().__init__(Diagnostic("KVC510", self._message(), help=self._help()))

    def _message(self) -> str:
        short = [
            f"pool group {group} needs {s.needed} slots, {s.free} of {s.total} are free"
            for group, s in self.groups.items()
            if s.needed > s.free
        ]
        return f"out of pages: {'; '.join(short)}"

    def _help(self) -> str:
        if not self.solvable:
            return "the request never fits: allocate more slots, or ask for fewer tokens"
        fitting = ", ".join(f"{tokens} tokens of {name!r}" for name, tokens in self.fitting.items())
        return f"fits now: {fitting or 'nothing'}; or preempt a sequence ({len(self.holders)} hold pages)"
