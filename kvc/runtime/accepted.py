"""How many of a step's tokens count, as its caller says."""

from collections.abc import Mapping, Sequence

from kvc.diagnostics import fail
from kvc.runtime.batch import Request, Step
from kvc.runtime.out_of_pages import SequenceId


def generating(step: Step) -> list[Request]:
    """The requests of the generation phase, whose tokens may be drafts."""
    return [request for request in step.requests if request.phase == "generation"]


def accepted_counts(requests: Sequence[Request], accepted: Mapping[SequenceId, int]) -> dict[SequenceId, int]:
    """Accepted tokens of each request, all where nothing is said; KVC507 for a sequence that has none."""
    all_of = {request.id: request.tokens for request in requests}
    unknown = [name for name in accepted if name not in all_of]
    if unknown:
        raise fail("KVC507", f"sequence {unknown[0]!r} is not in the step; it has {list(all_of)}")
    return {name: accepted.get(name, tokens) for name, tokens in all_of.items()}
