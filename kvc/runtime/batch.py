"""One step of an engine: which tokens of which sequences run.

Rows of q, k and v follow the requests in order, context requests first. A generation part is padded to the next bucket
of sequences (length 0, page -1, sequence id -1) so that its shapes are those of a captured graph; context parts are
exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from kvc.diagnostics import fail
from kvc.graphs.program import PHASES, Phase
from kvc.plan.stale import ceil_div
from kvc.runtime.cache_manager import CacheManager
from kvc.runtime.out_of_pages import SequenceId
from kvc.specs.resolved import Domain


@dataclass(frozen=True, slots=True)
class Request:
    """``tokens`` new tokens of sequence ``id``: a prompt or a chunk of it (context), or 1 + draft tokens
    (generation)."""

    id: SequenceId
    tokens: int
    phase: Phase = "context"


@dataclass(frozen=True)
class Part:
    """The requests of one phase in a step.

    ``rows`` are their rows in the caller's q, k and v; ``tokens`` and ``sequences`` are real, ``padded_tokens`` and
    ``padded_sequences`` what the graph sees; ``width`` is that of the slot tables. ``accepted_rows``: where the device
    finds how many tokens of a sequence the step in flight accepted, -1 where nothing is open about it.
    """

    phase: Phase
    requests: tuple[Request, ...]
    rows: slice
    padded_sequences: int
    padded_tokens: int
    width: int
    accepted_rows: tuple[int, ...] = ()

    @property
    def sequences(self) -> int:
        """Real sequences."""
        return len(self.requests)

    @property
    def tokens(self) -> int:
        """Real tokens."""
        return self.rows.stop - self.rows.start

    @cached_property
    def counts(self) -> dict[SequenceId, int]:
        """Tokens of each sequence."""
        return {request.id: request.tokens for request in self.requests}

    @property
    def dims(self) -> dict[str, int]:
        """Sizes of the named dimensions of the step buffer's sections, except `G`."""
        return {"B": self.padded_sequences, "T": self.padded_tokens, "W": self.width}


@dataclass(frozen=True, eq=False)
class Step:
    """What `Cache.begin` answers; `Cache.layer` and `Cache.commit` take it for granted until the next one.

    ``domains``: whose layers run, None: all of them. Two steps are never equal: the cache knows its own by identity.
    """

    parts: tuple[Part, ...]
    domains: tuple[Domain, ...] | None = None

    def runs(self, domain: Domain) -> bool:
        """Whether the layers of a domain see the step's tokens."""
        return self.domains is None or domain in self.domains

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """Requests in row order."""
        if len(self.parts) == 1:
            return self.parts[0].requests
        return tuple(request for part in self.parts for request in part.requests)

    @property
    def counts(self) -> Mapping[SequenceId, int]:
        """Tokens of each sequence, in row order."""
        if len(self.parts) == 1:
            return self.parts[0].counts
        return {name: tokens for part in self.parts for name, tokens in part.counts.items()}

    @property
    def drafted(self) -> Mapping[SequenceId, int]:
        """Those of the generation phase: tokens that may not be accepted."""
        return next((part.counts for part in self.parts if part.phase == "generation"), _NOTHING)

    @property
    def tokens(self) -> int:
        """Real tokens: the rows of q, k and v."""
        return sum(part.tokens for part in self.parts)

    @property
    def padded_tokens(self) -> int:
        """Rows of q, k and v for a caller that keeps bucket-sized inputs."""
        return sum(part.padded_tokens for part in self.parts)

    @property
    def sequences(self) -> int:
        """Real sequences, in the order of the requests."""
        return sum(part.sequences for part in self.parts)

    @property
    def padded_sequences(self) -> int:
        """Sequences of a caller that keeps bucket-sized staging."""
        return sum(part.padded_sequences for part in self.parts)

    @cached_property
    def bucket(self) -> "Bucket | None":
        """Padded sequences of the generation part, tokens of each, and domains where not all run; the key of a captured
        graph."""
        generation = [part for part in self.parts if part.phase == "generation"]
        sizes = ((part.padded_sequences, part.padded_tokens // part.padded_sequences) for part in generation)
        return next(((*size, *(self.domains or ())) for size in sizes), None)

    @property
    def rows(self) -> dict[SequenceId, slice]:
        """Rows of each sequence in q, k, v and the output."""
        ends = np.cumsum([0, *(request.tokens for request in self.requests)]).tolist()
        return {
            request.id: slice(start, stop) for request, (start, stop) in zip(self.requests, pairwise(ends), strict=True)
        }


Bucket = tuple[int | str, ...]
_NOTHING: Mapping[SequenceId, int] = MappingProxyType({})


def next_bucket(sequences: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds ``sequences``; past the largest one a step is exact and not captured."""
    return next((bucket for bucket in buckets if bucket >= sequences), sequences)


def make_step(
    requests: Sequence[Request],
    manager: CacheManager,
    buckets: Sequence[int],
    domains: tuple[Domain, ...] | None = None,
    in_flight: Step | None = None,
) -> Step:
    """Shape a step; the manager is asked for lengths and not changed.

    ``in_flight``: the step before, where only the device knows what it accepted, in the order of its requests.

    KVC504: no requests, an unknown phase, a request that is no `Request`, context after generation, generation requests
    of unequal tokens; KVC502: a sequence twice; KVC501: an unknown one.
    """
    _check_requests(requests)
    for request in requests:
        manager.committed(request.id)
    parts, start = [], 0
    for phase in PHASES:
        chosen = tuple(request for request in requests if request.phase == phase)
        if chosen:
            parts.append(_SHAPES[phase](chosen, start, manager, buckets))
            start = parts[-1].rows.stop
    return Step(tuple(_awaiting(part, manager, in_flight) for part in parts), domains)


class StepShaper:
    """Shapes the steps of one manager: `make_step`, unless a step has the same generation requests as the last one."""

    def __init__(self, manager: CacheManager, buckets: Sequence[int]) -> None:
        self._manager, self._buckets = manager, buckets
        self._last: Step | None = None

    def shape(
        self, requests: Sequence[Request], domains: tuple[Domain, ...] | None = None, in_flight: Step | None = None
    ) -> Step:
        """The step of these requests; its ``parts`` are the last step's own where nothing about them has changed.

        Errors as `make_step`.
        """
        if self._last is not None and in_flight is None and _are_equal(requests, self._last.requests):
            for request in requests:
                self._manager.committed(request.id)
            return Step(self._last.parts, domains)
        step = make_step(requests, self._manager, self._buckets, domains, in_flight)
        lasting = in_flight is None and all(part.phase == "generation" for part in step.parts)
        self._last = step if lasting else None
        return step


def _are_equal(requests: Sequence[Request], known: Sequence[Request]) -> bool:
    """Whether they are requests that were checked already; 1 and True are equal, but True is no number of tokens."""
    return len(requests) == len(known) and all(map(_is_equal, requests, known))


def _is_equal(request: Request, known: Request) -> bool:
    if request is known:
        return True
    same = type(request) is Request and type(request.tokens) is int and request.tokens == known.tokens
    return same and request.id == known.id and request.phase == known.phase


def _awaiting(part: Part, manager: CacheManager, in_flight: Step | None) -> Part:
    """The part with the row of each sequence in the step in flight, if that may still take back tokens of it."""
    rows = {request.id: row for row, request in enumerate(in_flight.requests)} if in_flight else {}
    found = (rows.get(request.id, -1) if manager.unsettled(request.id) else -1 for request in part.requests)
    return replace(part, accepted_rows=tuple(found))


def padding_step(sequences: int, tokens: int, manager: CacheManager, domains: tuple[Domain, ...] | None = None) -> Step:
    """A generation step of nothing but padding: the shapes of a bucket, for a capture that writes no page."""
    part = Part("generation", (), slice(0, 0), sequences, sequences * tokens, manager.table_width)
    return Step((part,), domains)


def _context(requests: tuple[Request, ...], start: int, manager: CacheManager, buckets: Sequence[int]) -> Part:
    tokens = sum(request.tokens for request in requests)
    longest = max(manager.committed(request.id) + request.tokens for request in requests)
    width = max(ceil_div(longest, cycle.tokens_per_page) for cycle in manager.lifecycles)
    return Part("context", requests, slice(start, start + tokens), len(requests), tokens, width)


def _generation(requests: tuple[Request, ...], start: int, manager: CacheManager, buckets: Sequence[int]) -> Part:
    each = requests[0].tokens
    padded = next_bucket(len(requests), buckets)
    rows = slice(start, start + each * len(requests))
    return Part("generation", requests, rows, padded, padded * each, manager.table_width)


_SHAPES = {"context": _context, "generation": _generation}


def _check_requests(requests: Sequence[Request]) -> None:
    if not requests:
        raise fail("KVC504", "a step of no requests")
    for request in requests:
        if not isinstance(request, Request):
            raise fail("KVC504", f"{request!r} is not a Request", help="use kvc.Request(id, tokens, phase)")
        if request.phase not in PHASES:
            raise fail(
                "KVC504", f"sequence {request.id!r}: unknown phase {request.phase!r}", help="use " + " or ".join(PHASES)
            )
        if isinstance(request.tokens, bool) or not isinstance(request.tokens, int) or request.tokens < 1:
            message = f"sequence {request.id!r}: tokens must be an integer of at least 1, not {request.tokens!r}"
            raise fail("KVC504", message)
    _check_order(requests)


def _check_order(requests: Sequence[Request]) -> None:
    seen: set[SequenceId] = set()
    for request in requests:
        if request.id in seen:
            raise fail("KVC502", f"sequence {request.id!r} is in the step twice")
        seen.add(request.id)
    for before, after in pairwise(requests):
        if (before.phase, after.phase) == ("generation", "context"):
            message = f"context request {after.id!r} after generation request {before.id!r}"
            raise fail("KVC504", message, help="rows of context requests come first: sort the requests by phase")
    counts = {request.tokens for request in requests if request.phase == "generation"}
    if len(counts) > 1:
        message = f"generation requests of {sorted(counts)} tokens in one step"
        raise fail("KVC504", message, help="give all the same number of tokens; a longer one can run as context")
