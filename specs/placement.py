"""Where a spec's entries lie among the layers: entries multiplied out by arithmetic, never by copying."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvc.specs.models import GqaLayer, LayerEntry, LayerGroup, Spec
from kvc.specs.nodes import Loc
from kvc.specs.sizes import parse_layers


@dataclass(frozen=True)
class PlacedLayer:
    """``count`` equal layers from index ``first`` on, written at ``loc``."""

    first: int
    count: int
    layer: GqaLayer
    loc: Loc


def entry_layers(entries: list[LayerEntry]) -> int:
    """Number of layers, `repeat` multiplied out."""
    return sum(entry.repeat * (entry_layers(entry.layers) if isinstance(entry, LayerGroup) else 1) for entry in entries)


def written_layers(entries: list[LayerEntry], loc: Loc = ("model", "layers")) -> Iterator[tuple[Loc, GqaLayer]]:
    """Every layer entry once, as it is written."""
    for index, entry in enumerate(entries):
        if isinstance(entry, LayerGroup):
            yield from written_layers(entry.layers, (*loc, index, "layers"))
        else:
            yield (*loc, index), entry


def _in_order(entries: list[LayerEntry], loc: Loc = ("model", "layers")) -> Iterator[tuple[int, GqaLayer, Loc]]:
    for index, entry in enumerate(entries):
        if isinstance(entry, LayerGroup):
            for _ in range(entry.repeat):
                yield from _in_order(entry.layers, (*loc, index, "layers"))
        else:
            yield entry.repeat, entry, (*loc, index)


def placed_layers(spec: Spec) -> list[PlacedLayer]:
    """The layers in order; call it only once the number of layers was checked."""
    placed, first = [], 0
    for count, layer, loc in _in_order(spec.model.layers):
        placed.append(PlacedLayer(first, count, layer, loc))
        first += count
    return placed


def override_ranges(spec: Spec) -> list[tuple[range, ...]]:
    """The layers of every override."""
    return [parse_layers(override.layers) for override in spec.cache.overrides]
