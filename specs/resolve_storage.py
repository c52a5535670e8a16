"""How every layer's history is stored: the cache's settings, or those of the one override that names it."""

from bisect import bisect_right
from dataclasses import dataclass

from kvc.capabilities import mixed_layer
from kvc.capabilities.checkpoint_names import SCALES
from kvc.encodings import ENCODINGS
from kvc.specs import models, resolved

CONTEXT_FIELDS = ("q", "k", "v")  # what fp8 context attention quantizes


@dataclass(frozen=True)
class Stored:
    """What the spec says about one layer; ``own``: the encoding is the layer's own, not the cache's.

    ``scales_at``, ``retain_at``: the layer's place among those that a list of scales is for.
    """

    encoding: str
    own: bool
    scales: models.Scales | None
    scales_at: int
    retain: models.Retain | None
    retain_at: int


class Storage:
    """The storage of the target's layers by index."""

    def __init__(self, cache: models.Cache, ranges: list[tuple[range, ...]]) -> None:
        self._cache = cache
        # (layers, position of the first one in the override's own count, override), by layer.
        self._overridden: list[tuple[range, int, models.Override]] = []
        for override, of_override in zip(cache.overrides, ranges, strict=True):
            before = 0
            for layers in of_override:
                self._overridden.append((layers, before, override))
                before += len(layers)
        self._overridden.sort(key=lambda row: row[0].start)

    def cuts(self, num_layers: int) -> list[int]:
        """Layer indices at which storage may change, ascending."""
        places: tuple[models.Cache | models.Override, ...] = (self._cache, *self._cache.overrides)
        twins = (place.retain.scales for place in places if place.retain)
        if any(map(has_list, (*(place.scales for place in places), *twins))):
            return list(range(num_layers))
        return sorted({end for layers, _, _ in self._overridden for end in (layers.start, layers.stop)})

    def of(self, layer: int) -> Stored:
        """What is said about one layer."""
        cache, index = self._cache, bisect_right(self._overridden, layer, key=lambda row: row[0].start) - 1
        if index < 0 or layer not in self._overridden[index][0]:
            return Stored(cache.encoding, False, cache.scales, layer, cache.retain, layer)
        layers, before, override = self._overridden[index]
        place, own_retain = before + layer - layers.start, "retain" in override.model_fields_set
        scales, scales_at = (cache.scales, layer) if override.scales is None else (override.scales, place)
        retain, retain_at = (override.retain, place) if own_retain else (cache.retain, layer)
        own = override.encoding is not None
        return Stored(override.encoding or cache.encoding, own, scales, scales_at, retain, retain_at)


def has_list(scales: models.Scales | None) -> bool:
    """Whether a field has one number a layer."""
    if not isinstance(scales, models.GivenScales):
        return False
    return any(isinstance(numbers, list) for _, numbers in scales.values)


def scale_source(
    encoding: str, shape: resolved.Shape, scales: models.Scales | None, position: int
) -> resolved.ScaleSource:
    """The scale of every field that has one of its own under ``encoding``; the spec must have been checked."""
    names = ENCODINGS[encoding].scale_fields(tuple(field.name for field in shape.fields))
    return source_of(names, shape.kind, scales, position)


def source_of(names: tuple[str, ...], kind: str, scales: models.Scales | None, position: int) -> resolved.ScaleSource:
    """The scale of every field of ``names``, for the layer at ``position`` of those that a list is for.

    ``kind`` of layer decides what a checkpoint calls it.
    """
    if not names or scales is None:
        return resolved.ScaleSource("none")
    if isinstance(scales, models.UnitScales):
        return resolved.ScaleSource("unit", tuple((name, 1.0) for name in names))
    if isinstance(scales, models.CheckpointScales):
        given = ((name, getattr(scales.names, name)) for name in names)
        templates = tuple((name, (template,) if template else SCALES[kind][name]) for name, template in given)
        return resolved.ScaleSource("checkpoint", names=templates)
    values = ((name, getattr(scales.values, name)) for name in names)
    numbers = ((name, value[position] if isinstance(value, list) else value) for name, value in values)
    return resolved.ScaleSource("values", tuple((name, float(value)) for name, value in numbers))


def _retained(retain: models.Retain | None, shape: resolved.Shape, position: int) -> resolved.Retained | None:
    if retain is None or not retain.keeps_tokens or retain.encoding is None:
        return None
    scales = scale_source(retain.encoding, shape, retain.scales, position)
    return resolved.Retained(retain.first, retain.last, retain.unit, retain.encoding, scales)


# A layer's encoding, its scales, and its twin.
_Result = tuple[str, resolved.ScaleSource, resolved.Retained | None]


def storage_of(stored: Stored, shape: resolved.Shape, coverage: resolved.Coverage) -> _Result:
    """How a layer is stored: one that cannot have a twin keeps its rows in the twin's encoding, as a whole."""
    if isinstance(shape, resolved.RecurrentShape):
        return "state", resolved.ScaleSource("none"), None
    retain = _retained(stored.retain, shape, stored.retain_at)
    layer = mixed_layer(shape.capability, coverage.kind)
    if retain and layer.pool == "high" and not stored.own:
        return retain.encoding, retain.scales, None
    scales = scale_source(stored.encoding, shape, stored.scales, stored.scales_at)
    return stored.encoding, scales, retain if layer.accepts_twin else None
