"""Several caches under one model: the same step on each, so that the model's own weights are read once for all."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvc.runtime.batch import Request


@dataclass(frozen=True, eq=False)
class SideBySideStep:
    """The open step of each cache, in the order of the rows; ``padded_tokens`` are `tokens`: nothing is captured."""

    steps: tuple[Any, ...]

    @property
    def tokens(self) -> int:
        """Rows of the step."""
        return sum(step.tokens for step in self.steps)

    padded_tokens = tokens


class SideBySide:
    """What an attachment and its runner need of a cache, over one cache a sequence.

    Sequence ``i`` lives in ``caches[i]``. The programs are of one model; their encodings may differ.
    """

    def __init__(self, caches: Sequence[Any]) -> None:
        self.caches = tuple(caches)
        self.program, self.limits = self.caches[0].program, self.caches[0].limits

    def admit(self, sequence: int) -> None:
        """Start the sequence of a cache."""
        self.caches[sequence].admit(sequence)

    def release(self, sequence: int) -> None:
        """Free the sequence of a cache."""
        self.caches[sequence].release(sequence)

    def begin(self, requests: Sequence[Request]) -> SideBySideStep:
        """Begin a step of one request on each cache that has one; on none if one refuses."""
        with ExitStack() as undo:
            steps = []
            for request in requests:
                cache = self._of(request)
                steps.append(cache.begin([request]))
                undo.callback(cache.abort, steps[-1])
            undo.pop_all()
        return self._opened(steps)

    def layer(self, layer: int, *values: Tensor) -> Tensor:
        """One layer of every cache, each on its own rows."""
        pieces = zip(*(value.split(self._counts) for value in values), strict=True)
        outs = [cache.layer(layer, *rows) for cache, rows in zip(self._in_step, pieces, strict=True)]
        return torch.cat(outs)

    def positions(self, padded: bool = False) -> Tensor:
        """The place of each row in its sequence."""
        return torch.cat([cache.positions(padded) for cache in self._in_step])

    def commit(self, step: SideBySideStep) -> None:
        """End the step: every token is accepted."""
        for cache, one in zip(self._in_step, step.steps, strict=True):
            cache.commit(one)

    def abort(self, step: SideBySideStep) -> None:
        """End the step as if it had not begun."""
        for cache, one in zip(self._in_step, step.steps, strict=True):
            cache.abort(one)

    def _of(self, request: Request) -> Any:
        assert isinstance(request.id, int), "sequences are numbered as the caches are"
        return self.caches[request.id]

    def _opened(self, steps: Sequence[Any]) -> SideBySideStep:
        self._in_step = [self._of(request) for step in steps for request in step.requests]
        self._counts = [step.tokens for step in steps]
        return SideBySideStep(tuple(steps))
