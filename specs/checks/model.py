"""Rules about the layers together: their number, whose K and V they read, draft layers, tensor parallelism."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from kvc.capabilities import MAX_LAYERS, PAGE_SIZES
from kvc.specs import layer_models as models
from kvc.specs.checks.layers import all_layers
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.models import Spec
from kvc.specs.nodes import Loc
from kvc.specs.placement import draft_layer, entry_layers, placed_layers
from kvc.specs.suggestions import listed


def _few_enough(spec: Spec) -> bool:
    return entry_layers(spec.model.layers) <= MAX_LAYERS


def _too_many_layers(spec: Spec) -> Iterator[Hit]:
    if _few_enough(spec):
        return
    total = entry_layers(spec.model.layers)
    largest = max(range(len(spec.model.layers)), key=lambda index: entry_layers(spec.model.layers[index : index + 1]))
    help = f"at most {MAX_LAYERS:,} are supported"
    shown = f"{total:,}" if total < 10**18 else "more than 10**18"
    yield Hit(("model", "layers", largest, "repeat"), f"the spec has {shown} layers", help)


# What two layers must agree on to read one K and V.
_KV_DIMS = ("kv_heads", "head_dim", "v_head_dim", "window", "keep_first", "chunk")


def _why_not_shared(reader: models.Layer, at: int, owner: Any, of: int) -> str:
    """Why layer ``at`` cannot read the K and V of layer ``of``; empty where it can."""
    if of >= at:
        return f"layer {of} is not before layer {at}"
    if not isinstance(owner, models.GqaLayer):
        return f"layer {of} is {owner.kind}"
    if owner.shares_kv_of is not None:
        return f"layer {of} has no K and V of its own: it reads those of layer {owner.shares_kv_of}"
    differ = [field for field in _KV_DIMS if getattr(reader, field) != getattr(owner, field)]
    return f"layer {of} has another `{differ[0]}`" if differ else ""


def _shared_kv(spec: Spec) -> Iterator[Hit]:
    if not _few_enough(spec) or not any(_owner(layer) is not None for _, layer in all_layers(spec)):
        return
    placed = placed_layers(spec)
    starts = [entry.first for entry in placed]
    reported: set[Loc] = set()
    for entry in placed:
        of = _owner(entry.layer)
        if of is None or entry.loc in reported:
            continue
        why = _why_not_shared(entry.layer, entry.first, placed[bisect_right(starts, of) - 1].layer, of)
        if why:
            reported.add(entry.loc)
            help = "name an earlier gqa layer with the same KV heads, dimensions and window"
            yield Hit((*entry.loc, "shares_kv_of"), why, help)


def _owner(layer: models.Layer) -> int | None:
    """The layer whose K and V it reads."""
    return layer.shares_kv_of if isinstance(layer, models.GqaLayer) else None


def _shared_indexers(spec: Spec) -> Iterator[Hit]:
    """The first layer with an indexer has a key of its own."""
    indexers = ((loc, getattr(layer, "indexer", None)) for loc, layer in all_layers(spec))
    loc, first = next(((loc, indexer) for loc, indexer in indexers if indexer), ((), None))
    if first and first.shared:
        message = "the first layer with an indexer has no earlier one to share"
        yield Hit((*loc, "indexer", "shared"), message, "write `shared: false`")


def _draft(spec: Spec) -> Iterator[Hit]:
    draft = spec.draft
    if draft is None:
        return
    try:
        layer, _ = draft_layer(spec)
    except ValueError as error:
        yield Hit(("draft",), f"what is a draft layer? {error}", "add `draft.layer`")
        return
    if _owner(layer) is not None:
        yield Hit(("draft",), "a draft layer cannot read another layer's K and V", "add `draft.layer`")
    if layer.repeat != 1 and draft.layer:
        yield Hit(("draft", "layer", "repeat"), "`draft.layers` is the number of draft layers", "remove `repeat`")
    if draft.tokens_per_page is not None and draft.tokens_per_page not in PAGE_SIZES:
        message = f"pages of {draft.tokens_per_page} tokens are not supported"
        yield Hit(("draft", "tokens_per_page"), message, f"a power of two from {PAGE_SIZES[0]} to {PAGE_SIZES[-1]}")


def _query_heads(layer: Any) -> Iterator[tuple[str, int]]:
    yield "heads", layer.heads


def _delta_heads(layer: models.GatedDeltaNetLayer) -> Iterator[tuple[str, int]]:
    yield "key_heads", layer.key_heads
    yield "value_heads", layer.value_heads


def _sharded_dims(layer: models.OtherRecurrentLayer) -> Iterator[tuple[str, int]]:
    for state in layer.states:
        if state.sharded is not None and state.sharded < len(state.shape):
            yield "states", state.shape[state.sharded]


# Layer -> (field, number) of what tensor parallelism must divide into whole parts.
_DIVIDED: dict[type, Callable[[Any], Iterator[tuple[str, int]]]] = {
    models.GatedDeltaNetLayer: _delta_heads,
    models.OtherRecurrentLayer: _sharded_dims,
}
# Layer -> field of what is divided, or copied where there are more ranks than parts.
_COPIED: dict[type, str] = {models.GqaLayer: "kv_heads", models.Mamba2Layer: "groups"}


def _tensor_parallel(spec: Spec) -> Iterator[Hit]:
    ranks = spec.parallel.tensor
    for loc, layer in all_layers(spec):
        for field, number in _DIVIDED.get(type(layer), _query_heads)(layer):
            if number % ranks:
                message = f"{number} {field.replace('_', ' ')} do not divide over {ranks} ranks"
                divisors = [count for count in range(1, number + 1) if number % count == 0]
                yield Hit((*loc, field), message, f"tensor parallel sizes that do: {listed(divisors[-8:])}")
        copied = _COPIED.get(type(layer))
        number = getattr(layer, copied) if copied else ranks
        if number % ranks and ranks % number:
            message = f"{number} {(copied or '').replace('_', ' ')} neither divide over {ranks} ranks nor can be copied"
            yield Hit((*loc, copied or ""), message, "one number must divide the other")


def _state_axes(spec: Spec) -> Iterator[Hit]:
    for loc, layer in all_layers(spec):
        for index, state in enumerate(getattr(layer, "states", ())):
            if state.sharded is not None and state.sharded >= len(state.shape):
                message = f"`sharded` names dimension {state.sharded} of {len(state.shape)}"
                yield Hit((*loc, "states", index, "sharded"), message, "dimensions are counted from 0")


RULES: tuple[Rule, ...] = (
    Rule("KVC113", "the number of layers is bounded", _too_many_layers),
    Rule("KVC135", "shared K and V are those of an earlier equal layer", _shared_kv),
    Rule("KVC136", "a shared indexer has an earlier one", _shared_indexers),
    Rule("KVC137", "draft layers are known", _draft),
    Rule("KVC138", "tensor parallelism divides heads", _tensor_parallel),
    Rule("KVC139", "sharded dimensions of states exist", _state_axes),
)
