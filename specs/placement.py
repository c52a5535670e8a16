"""Where a spec's entries lie among the layers: entries multiplied out by arithmetic, never by copying."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvc.specs.layer_models import Layer, LayerEntry, LayerGroup
from kvc.specs.models import Spec
from kvc.specs.nodes import Loc
from kvc.specs.sizes import parse_layers


@dataclass(frozen=True)
class PlacedLayer:
    """``count`` equal layers from index ``first`` on, written at ``loc``."""

    first: int
    count: int
    layer: Layer
    loc: Loc


def entry_layers(entries: list[LayerEntry]) -> int:
    """Number of layers, `repeat` multiplied out."""
    return sum(entry.repeat * (entry_layers(entry.layers) if isinstance(entry, LayerGroup) else 1) for entry in entries)


def written_layers(entries: list[LayerEntry], loc: Loc = ("model", "layers")) -> Iterator[tuple[Loc, Layer]]:
    """Every layer entry once, as it is written."""
    for index, entry in enumerate(entries):
        if isinstance(entry, LayerGroup):
            yield from written_layers(entry.layers, (*loc, index, "layers"))
        else:
            yield (*loc, index), entry


def _in_order(entries: list[LayerEntry], loc: Loc = ("model", "layers")) -> Iterator[tuple[int, Layer, Loc]]:
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


def draft_layer(spec: Spec) -> tuple[Layer, Loc]:
    """What a draft layer is and where that is written: `draft.layer`, or the last layer of the model with attention.

    ValueError where there is none.
    """
    if spec.draft and spec.draft.layer:
        return spec.draft.layer, ("draft", "layer")
    with_attention = [layer for _, layer in written_layers(spec.model.layers) if layer.kind != "recurrent"]
    if not with_attention:
        raise ValueError("no layer of the model has attention")
    return with_attention[-1], ("draft",)
