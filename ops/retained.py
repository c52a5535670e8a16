"""Which rows of a mixed cache are read from its twin: those that are retained and whose page the twin holds."""

from dataclasses import dataclass

import torch

from kvc.diagnostics import fail
from kvc.ops.axes import wrong

UNITS = ("token", "page")


@dataclass(frozen=True)
class Retained:
    """The first and last tokens of a sequence at its committed length, in whole pages where ``unit`` says so."""

    first: int
    last: int
    unit: str
    tokens_per_page: int

    def mask(self, committed: torch.Tensor, positions: int) -> torch.Tensor:
        """bool ``[B, positions]``: retained positions of every sequence, for committed lengths ``[B]``.

        A step's own rows, at or past the committed length, always are.
        """
        return self.covers(torch.arange(positions, device=committed.device), committed[:, None])

    def covers(self, position: torch.Tensor, committed: torch.Tensor) -> torch.Tensor:
        """bool: whether positions are retained at committed lengths, which broadcast to them."""
        start = committed - self.last
        if self.unit == "token":
            return (position < self.first) | (position >= start)
        page, size = position // self.tokens_per_page, self.tokens_per_page
        return (page < -(-self.first // size)) | (page >= start.div(size, rounding_mode="floor"))


def check_retained(op: str, first: int, last: int, unit: str) -> None:
    """Raise KVC551 for numbers of tokens below 0, KVC554 for a unit that is not known."""
    for name, value in (("first", first), ("last", last)):
        if value < 0:
            raise wrong(op, name, f"is {value}, expected 0 or more")
    if unit not in UNITS:
        raise fail("KVC554", f"kvc::{op}: unit {unit!r} is not known", help=f"one of {', '.join(UNITS)}")
