"""The places of a spec that set storage."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvc.encodings import ENCODINGS
from kvc.specs.models import Cache, Override, Retain, Scales, Spec
from kvc.specs.nodes import Loc
from kvc.specs.placement import entry_layers, override_ranges


@dataclass(frozen=True)
class Site:
    """`cache`, or one of its overrides with what it inherits; ``own`` are the fields that it sets itself."""

    loc: Loc
    encoding: str
    scales: Scales | None
    retain: Retain | None
    own: frozenset[str]
    layers: int

    @property
    def has_scales(self) -> bool:
        """Whether the encoding stores values under a scale."""
        return self.encoding in ENCODINGS and ENCODINGS[self.encoding].scale != "none"


def _own(place: Cache | Override) -> frozenset[str]:
    """Fields that are set; `retain: null` in an override counts, since it takes the cache's away."""
    given = {name for name in place.model_fields_set if getattr(place, name) is not None}
    return frozenset(given | (place.model_fields_set & {"retain"}))


def storage_sites(spec: Spec) -> Iterator[Site]:
    """`cache` first, then its overrides in order."""
    cache, total = spec.cache, entry_layers(spec.model.layers)
    yield Site(("cache",), cache.encoding, cache.scales, cache.retain, _own(cache), total)
    for index, (override, ranges) in enumerate(zip(cache.overrides, override_ranges(spec), strict=True)):
        own = _own(override)
        yield Site(
            loc=("cache", "overrides", index),
            encoding=override.encoding or cache.encoding,
            scales=override.scales or cache.scales,
            retain=override.retain if "retain" in own else cache.retain,
            own=own,
            layers=sum(map(len, ranges)),
        )
