"""Rules about twins: which histories may have one, in which encodings. Read from `kvc/capabilities/mixed.py`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvc.capabilities import (
    DRAFT_TREES,
    PRECISION,
    STORAGE_CAPABILITIES,
    TWIN_READS,
    UNTWINNED,
    mixed_layer,
    twin_encodings,
)
from kvc.encodings import ENCODINGS
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.checks.sites import Site, Written, storage_sites
from kvc.specs.models import Spec
from kvc.specs.nodes import Loc
from kvc.specs.suggestions import listed


@dataclass(frozen=True)
class Pair:
    """A history of ``kind`` in ``low`` and its twin in ``high``, which the spec decides at ``loc``."""

    loc: Loc
    kind: str
    low: str
    high: str

    @property
    def choices(self) -> list[str]:
        """Encodings that a twin of this history may have, the nearest to the wanted one first."""
        wanted = PRECISION.get(self.high, 0)
        return sorted(twin_encodings(self.kind, self.low), key=lambda name: abs(PRECISION[name] - wanted))

    @property
    def lower(self) -> list[str]:
        """Encodings of histories that may have a twin in ``high``, the nearest to the wanted one first."""
        names = [row.encoding for row in STORAGE_CAPABILITIES if row.kind == self.kind and self.high in row.twins]
        return sorted(names, key=lambda name: abs(PRECISION[name] - PRECISION.get(self.low, 0)))


def _decided_at(site: Site, cache: Site) -> Loc | None:
    """Where the site decides about its layers' twins; None where the cache does, or nobody."""
    if "retain" in site.own:
        return (*site.loc, "retain")
    if site.loc[0] != "cache":
        return None
    if "encoding" in site.own:
        return (*site.loc, "encoding")
    return None if site.is_spoken_for_by(cache) else site.loc


def _mixed_sites(spec: Spec) -> Iterator[tuple[Loc, Site, str]]:
    """Where something is retained: the place that decides it, the site, the twin's encoding."""
    cache, *others = storage_sites(spec)
    for site in (cache, *others):
        loc = _decided_at(site, cache)
        if loc and site.high is not None:
            yield loc, site, site.high


def _is_stored(layer: Written, encoding: str) -> bool:
    return any((row.kind, row.encoding) == (layer.kind, encoding) for row in STORAGE_CAPABILITIES)


def _pairs(spec: Spec) -> Iterator[Pair]:
    """Every history that would have a twin; those that cannot be stored at all are other rules' (KVC101, KVC102)."""
    for loc, site, high in _mixed_sites(spec):
        able = (layer for layer in site.covers if layer.has_twin and _is_stored(layer, site.encoding))
        for kind in dict.fromkeys(layer.kind for layer in able):
            if high in ENCODINGS:  # an unknown name is KVC101's
                yield Pair(loc, kind, site.encoding, high)


def _nowhere(spec: Spec) -> Iterator[Hit]:
    """A twin is asked for where no layer takes one."""
    for loc, site, _ in _mixed_sites(spec):
        if "retain" in site.own and not any(layer.has_twin for layer in site.covers):
            kinds = listed(dict.fromkeys(layer.name for layer in site.covers))
            whys = dict.fromkeys(_why_none(layer) for layer in site.covers)
            yield Hit(loc, f"no layer here can have a twin: {kinds} ({'; '.join(whys)})", "remove `retain`")


def _why_none(layer: Written) -> str:
    return mixed_layer(layer.kind, layer.coverage).why or "it reads another layer's rows"


def _remedy(pair: Pair) -> str:
    """The nearest choice."""
    without = "remove `retain`" if pair.loc[-1] == "retain" else "add `retain: null`"
    if pair.choices:
        return f"nearest: a twin in `{pair.choices[0]}` (supported twins: {listed(pair.choices)}); or {without}"
    if pair.lower:
        return f"nearest: a history in `{pair.lower[0]}` (supported: {listed(pair.lower)}); or {without}"
    return f"{without}; supported twins: none"


def _untwinned(pair: Pair) -> str | None:
    if pair.low in UNTWINNED:
        return f"encoding `{pair.low}` of a {pair.kind} layer cannot have a twin: {UNTWINNED[pair.low]}"
    return None


def _unreadable(pair: Pair) -> str | None:
    reads = TWIN_READS[pair.kind]
    if pair.low in UNTWINNED or pair.high in reads.encodings:
        return None
    return f"attention of a {pair.kind} layer cannot read a twin in `{pair.high}`: {reads.why}"


def _no_gain(pair: Pair) -> str | None:
    """More bytes for nothing."""
    readable = pair.low not in UNTWINNED and pair.high in TWIN_READS[pair.kind].encodings
    if readable and PRECISION[pair.high] <= PRECISION[pair.low]:
        return f"a twin in `{pair.high}` is no more precise than the history of {pair.kind} layers in `{pair.low}`"
    return None


def _each(problem: Callable[[Pair], str | None]) -> Callable[[Spec], Iterator[Hit]]:
    """The rule that no pair has such a problem."""

    def find(spec: Spec) -> Iterator[Hit]:
        for pair in _pairs(spec):
            message = problem(pair)
            if message:
                yield Hit(pair.loc, message, _remedy(pair))

    return find


def _impossible(spec: Spec) -> Iterator[Hit]:
    yield from _nowhere(spec)
    yield from _each(_untwinned)(spec)


def _trees(spec: Spec) -> Iterator[Hit]:
    tree = spec.draft.tree if spec.draft else "none"
    if DRAFT_TREES[tree]:
        message = f"drafts cannot be a {tree} tree: {DRAFT_TREES[tree]}"
        yield Hit(("draft", "tree"), message, "remove `tree`: drafted tokens follow each other in a chain")


RULES: tuple[Rule, ...] = (
    Rule("KVC110", "retained tokens have a layer and a history that take a twin", _impossible),
    Rule("KVC143", "a twin is more precise than its history", _each(_no_gain)),
    Rule("KVC144", "attention can read the twin", _each(_unreadable)),
    Rule("KVC149", "drafts are a chain", _trees),
)
