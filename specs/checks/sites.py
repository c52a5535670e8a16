"""The places of a spec that set storage."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvc.capabilities import MAX_LAYERS, mixed_layer
from kvc.encodings import ENCODINGS
from kvc.specs.layer_models import Layer
from kvc.specs.models import Cache, Draft, Override, Retain, Scales, Spec, UnitScales
from kvc.specs.nodes import Loc
from kvc.specs.placement import draft_layer, entry_layers, override_ranges, placed_layers, written_layers
from kvc.specs.resolve_shapes import capability_name, coverage_of, shape_of


@dataclass(frozen=True)
class Written:
    """A layer of the spec as it is written, with what its storage depends on."""

    loc: Loc
    kind: str
    coverage: str
    widths: tuple[tuple[str, int, int], ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields of a row; none where the layer keeps no rows of its own."""
        return tuple(name for name, _, _ in self.widths)

    @property
    def name(self) -> str:
        """Kind and coverage in words; a recurrent layer's is its kind."""
        return self.kind if self.kind.startswith(self.coverage) else f"{self.kind} {self.coverage}"

    @property
    def has_twin(self) -> bool:
        """Whether its history may have a twin at all."""
        return bool(self.widths) and mixed_layer(self.kind, self.coverage).accepts_twin


@dataclass(frozen=True)
class Site:
    """`cache`, one of its overrides with what it inherits, or `draft`; ``own`` are the fields that it sets itself.

    ``covers`` are the layers that it speaks for, each as it is written, ``layers`` their number.
    """

    loc: Loc
    encoding: str
    scales: Scales | None
    retain: Retain | None
    own: frozenset[str]
    layers: int
    covers: tuple[Written, ...]

    @property
    def high(self) -> str | None:
        """Encoding of what is retained; None where nothing is."""
        return self.retain.encoding if self.retain and self.retain.keeps_tokens else None

    @property
    def encodings(self) -> dict[str, tuple[Written, ...]]:
        """Encoding -> the layers whose rows it stores: a layer that cannot have a twin keeps all in the twin's."""
        high = self.high
        if high in (None, self.encoding) or (self.loc != ("cache",) and "encoding" in self.own):
            return {self.encoding: self.covers}
        low = tuple(layer for layer in self.covers if layer.has_twin)
        return {self.encoding: low, high: tuple(layer for layer in self.covers if not layer.has_twin)}

    @property
    def scale_fields(self) -> tuple[str, ...]:
        """Fields of its layers that have a scale of their own under its encoding."""
        return scale_fields(self.encoding, self.encodings.get(self.encoding, ()))

    @property
    def twin_scale_fields(self) -> tuple[str, ...]:
        """The same under the twin's encoding, of the layers that store anything in it."""
        return scale_fields(self.high, self.high_layers) if self.high else ()

    @property
    def high_layers(self) -> tuple[Written, ...]:
        """Layers with a twin, and those that keep all their rows in its encoding."""
        plain = self.encodings.get(self.high or "", ())
        return tuple(layer for layer in self.covers if self.high and (layer.has_twin or layer in plain))

    def is_spoken_for_by(self, other: "Site") -> bool:
        """Whether all its layers, as they are written, are the other's too."""
        return {layer.loc for layer in self.covers} <= {layer.loc for layer in other.covers}


def scale_fields(encoding: str, layers: tuple[Written, ...]) -> tuple[str, ...]:
    """Fields of ``layers`` that have a scale of their own under ``encoding``, each once."""
    if encoding not in ENCODINGS:
        return ()
    names = (name for layer in layers for name in ENCODINGS[encoding].scale_fields(layer.fields))
    return tuple(dict.fromkeys(names))


def _own(place: Cache | Override | Draft) -> frozenset[str]:
    """Fields that are set; `retain: null` in an override counts, since it takes the cache's away."""
    given = {name for name in place.model_fields_set if getattr(place, name) is not None}
    return frozenset(given | (place.model_fields_set & {"retain"}))


def _written(loc: Loc, layer: Layer) -> Written:
    fields = shape_of(layer, 1, 0).fields
    widths = tuple((field.name, field.heads, field.dim) for field in fields)
    return Written(loc, capability_name(layer), coverage_of(layer).kind, widths)


def _covered(spec: Spec) -> tuple[tuple[Written, ...], list[tuple[Written, ...]]]:
    """The layers that `cache` speaks for, and those of every override; all of them for each where there are too many.

    Places are compared by arithmetic: `repeat` is not expanded.
    """
    written = {loc: _written(loc, layer) for loc, layer in written_layers(spec.model.layers)}
    ranges = override_ranges(spec)
    if not ranges or entry_layers(spec.model.layers) > MAX_LAYERS:
        return tuple(written.values()), [tuple(written.values()) for _ in ranges]
    rest: dict[Loc, Written] = {}
    named: list[dict[Loc, Written]] = [{} for _ in ranges]
    for entry in placed_layers(spec):
        left = entry.count
        for of_override, layers in zip(named, ranges, strict=True):
            taken = sum(_overlap(entry.first, entry.count, part) for part in layers)
            left -= taken
            if taken:
                of_override[entry.loc] = written[entry.loc]
        if left > 0:
            rest[entry.loc] = written[entry.loc]
    # What overrides leave nothing of is judged as if they were not there.
    return tuple((rest or written).values()), [tuple(layers.values()) for layers in named]


def _overlap(first: int, count: int, layers: range) -> int:
    return max(0, min(first + count, layers.stop) - max(first, layers.start))


def storage_sites(spec: Spec) -> Iterator[Site]:
    """`cache` first, then its overrides in order, then `draft`."""
    cache, total = spec.cache, entry_layers(spec.model.layers)
    rest, named = _covered(spec)
    yield Site(("cache",), cache.encoding, cache.scales, cache.retain, _own(cache), total, rest)
    for index, (override, ranges) in enumerate(zip(cache.overrides, override_ranges(spec), strict=True)):
        own = _own(override)
        yield Site(
            loc=("cache", "overrides", index),
            encoding=override.encoding or cache.encoding,
            scales=override.scales or cache.scales,
            retain=override.retain if "retain" in own else cache.retain,
            own=own,
            layers=sum(map(len, ranges)),
            covers=named[index],
        )
    if spec.draft:
        yield from _draft_site(spec, spec.draft)


def _draft_site(spec: Spec, draft: Draft) -> Iterator[Site]:
    """The draft layers, where it is known what they are; unit scales of the cache serve them too."""
    try:
        layer, loc = draft_layer(spec)
    except ValueError:
        return
    inherited = spec.cache.scales if isinstance(spec.cache.scales, UnitScales) else None
    covers = (_written(loc, layer),)
    yield Site(("draft",), draft.encoding, draft.scales or inherited, None, _own(draft), draft.layers, covers)
