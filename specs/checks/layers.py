"""Rules about single layers: their dimensions, rotary embeddings and coverage."""

from collections.abc import Iterator
from typing import Any, TypeVar

from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.layer_models import DeepseekV4Layer, DsaLayer, GatedDeltaNetLayer, GqaLayer, Layer, Mamba2Layer
from kvc.specs.models import Spec
from kvc.specs.nodes import Loc
from kvc.specs.placement import written_layers
from kvc.specs.rope_models import Llama3Rope, YarnRope
from kvc.specs.suggestions import listed

Kind = TypeVar("Kind")


def all_layers(spec: Spec) -> Iterator[tuple[Loc, Layer]]:
    """Every layer as it is written, the draft's own among them."""
    yield from written_layers(spec.model.layers)
    if spec.draft and spec.draft.layer:
        yield ("draft", "layer"), spec.draft.layer


def _of_kind(spec: Spec, kind: type[Kind]) -> Iterator[tuple[Loc, Kind]]:
    return ((loc, layer) for loc, layer in all_layers(spec) if isinstance(layer, kind))


def _close_divisors(number: int, wanted: int) -> list[int]:
    divisors = [count for count in range(1, number + 1) if number % count == 0]
    return sorted(sorted(divisors, key=lambda count: abs(count - wanted))[:3])


def _heads(spec: Spec) -> Iterator[Hit]:
    for loc, layer in _of_kind(spec, GqaLayer):
        if layer.heads % layer.kv_heads:
            message = f"{layer.heads} query heads do not divide into {layer.kv_heads} KV heads"
            close = _close_divisors(layer.heads, layer.kv_heads)
            yield Hit((*loc, "kv_heads"), message, f"nearest divisors of {layer.heads}: {listed(close)}")


def _state_heads(spec: Spec) -> Iterator[Hit]:
    for loc, layer in _of_kind(spec, Mamba2Layer):
        if layer.heads % layer.groups:
            message = f"{layer.heads} heads do not divide into {layer.groups} groups"
            close = _close_divisors(layer.heads, layer.groups)
            yield Hit((*loc, "groups"), message, f"nearest divisors of {layer.heads}: {listed(close)}")
    for loc, delta in _of_kind(spec, GatedDeltaNetLayer):
        if delta.value_heads % delta.key_heads:
            message = f"{delta.value_heads} value heads do not divide into {delta.key_heads} key heads"
            close = _close_divisors(delta.value_heads, delta.key_heads)
            yield Hit((*loc, "key_heads"), message, f"nearest divisors of {delta.value_heads}: {listed(close)}")


def rotated(layer: Layer) -> tuple[str, int]:
    """Field whose features the rope rotates, and how many there are."""
    field = "head_dim" if isinstance(layer, GqaLayer) else "qk_rope_head_dim"
    return field, getattr(layer, field)


def with_rope(spec: Spec) -> Iterator[tuple[Loc, Any]]:
    """Layers that encode positions."""
    return ((loc, layer) for loc, layer in all_layers(spec) if getattr(layer, "rope", "none") != "none")


def _rope_dims(spec: Spec) -> Iterator[Hit]:
    for loc, layer in with_rope(spec):
        rope = layer.rope
        field, width = rotated(layer)
        dim = rope.dim or width
        at = (*loc, "rope", "dim") if rope.dim else (*loc, field)
        if dim % 2:
            yield Hit(
                at, f"RoPE rotates pairs, and {dim} is odd", f"nearest even numbers: {listed((dim - 1, dim + 1))}"
            )
        elif dim > width:
            yield Hit(at, f"RoPE over {dim} of {width} features", f"write at most {width}")


def _rope_limits(spec: Spec) -> Iterator[Hit]:
    for loc, layer in with_rope(spec):
        rope = layer.rope
        if isinstance(rope, Llama3Rope) and rope.low_freq_factor >= rope.high_freq_factor:
            message = "`low_freq_factor` must be less than `high_freq_factor`"
            yield Hit((*loc, "rope", "low_freq_factor"), message, "Llama 3.1 has 1.0 and 4.0")
        if isinstance(rope, YarnRope) and rope.beta_slow > rope.beta_fast:
            message = "`beta_slow` must not exceed `beta_fast`"
            yield Hit((*loc, "rope", "beta_slow"), message, "YaRN's own are 1 and 32")


def _windows(spec: Spec) -> Iterator[Hit]:
    for loc, layer in _of_kind(spec, GqaLayer):
        if layer.window is not None and layer.chunk is not None:
            message = f"a layer with a window of {layer.window} cannot have chunks of {layer.chunk} too"
            yield Hit((*loc, "chunk"), message, "keep `window`, or `chunk`")
        if layer.keep_first and layer.window is None:
            message = "`keep_first` keeps tokens beside a window, and there is none"
            yield Hit((*loc, "keep_first"), message, "add `window`, or remove `keep_first`: every token is kept")


def _v4_parts(spec: Spec) -> Iterator[Hit]:
    for loc, layer in _of_kind(spec, DeepseekV4Layer):
        if layer.qk_rope_head_dim >= layer.head_dim:
            message = f"{layer.qk_rope_head_dim} rotated features leave none of {layer.head_dim}"
            yield Hit((*loc, "qk_rope_head_dim"), message, f"write less than {layer.head_dim}")
        if layer.indexer and layer.compressor is None:
            message = "an indexer chooses compressed rows, and there is no compressor"
            yield Hit((*loc, "indexer"), message, "add `compressor`, or remove `indexer`")


def _pages_of_groups(spec: Spec) -> Iterator[Hit]:
    size = spec.cache.tokens_per_page
    for loc, layer in _of_kind(spec, DeepseekV4Layer):
        pages = (spec.draft and spec.draft.tokens_per_page) or size if loc[0] == "draft" else size
        if layer.compressor and pages % layer.compressor.ratio:
            ratio = layer.compressor.ratio
            message = f"a page of {pages} tokens does not hold whole groups of {ratio}"
            yield Hit((*loc, "compressor", "ratio"), message, "write a tokens_per_page that is a multiple of the ratio")


def _indexer_rope(spec: Spec) -> Iterator[Hit]:
    """What the layer's RoPE does to an index key is said, and the key has that many features."""
    for loc, layer in with_rope(spec):
        indexer = layer.indexer if isinstance(layer, DsaLayer) else None
        if indexer is None or indexer.shared:
            continue
        dim = layer.rope.dim or rotated(layer)[1]
        if indexer.rope_layout is None:
            message = "the layer has RoPE, and nothing says which features of the index key pair up"
            help = f"add `rope_layout`: {listed(('half', 'interleaved'))} (half in DeepSeek-V3.2, interleaved in GLM-5)"
            yield Hit((*loc, "indexer"), message, help)
        if indexer.head_dim < dim:
            message = f"the layer's RoPE rotates {dim} features, and the index key has {indexer.head_dim}"
            yield Hit((*loc, "indexer", "head_dim"), message, f"write {dim} or more")


RULES: tuple[Rule, ...] = (
    Rule("KVC104", "query heads divide into KV heads", _heads),
    Rule("KVC105", "RoPE rotates pairs inside the head", _rope_dims),
    Rule("KVC124", "RoPE's limits are in order", _rope_limits),
    Rule("KVC131", "windows, chunks and first tokens do not contradict", _windows),
    Rule("KVC132", "state heads divide into groups", _state_heads),
    Rule("KVC133", "the parts of a deepseek_v4 layer fit together", _v4_parts),
    Rule("KVC134", "a page holds whole compressed groups", _pages_of_groups),
    Rule("KVC142", "the RoPE of an indexer is known", _indexer_rope),
)
