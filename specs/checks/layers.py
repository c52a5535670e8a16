"""Rules about layers: their dimensions, rotary embeddings, options and number."""

from collections.abc import Iterator

from kvc.capabilities import LAYER_CAPABILITIES, MAX_LAYERS
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.models import Llama3Rope, Spec, YarnRope
from kvc.specs.placement import entry_layers, written_layers
from kvc.specs.suggestions import listed

_COVERAGES = {"window": "sliding windows", "chunk": "chunked attention", "keep_first": "first tokens beside a window"}
_OPTIONS = {
    "softcap": "a cap on attention scores",
    "sink_logits": "learned extra logits",
    "shares_kv_of": "layers without their own K and V",
}


def _unsupported(spec: Spec, names: dict[str, str], help: str) -> Iterator[Hit]:
    for loc, layer in written_layers(spec.model.layers):
        for field, what in names.items():
            if getattr(layer, field) != type(layer).model_fields[field].default:
                yield Hit((*loc, field), f"`{field}` ({what}) is not supported yet for {layer.kind} layers", help)


def _heads(spec: Spec) -> Iterator[Hit]:
    for loc, layer in written_layers(spec.model.layers):
        if layer.heads % layer.kv_heads:
            divisors = [count for count in range(1, layer.heads + 1) if layer.heads % count == 0]
            close = sorted(sorted(divisors, key=lambda count: abs(count - layer.kv_heads))[:3])
            message = f"{layer.heads} query heads do not divide into {layer.kv_heads} KV heads"
            yield Hit((*loc, "kv_heads"), message, f"nearest divisors of {layer.heads}: {listed(close)}")


def _rope_dims(spec: Spec) -> Iterator[Hit]:
    for loc, layer in written_layers(spec.model.layers):
        if layer.rope == "none":
            continue
        dim = layer.rope.dim or layer.head_dim
        at = (*loc, "rope", "dim") if layer.rope.dim else (*loc, "head_dim")
        if dim % 2:
            yield Hit(
                at, f"RoPE rotates pairs, and {dim} is odd", f"nearest even numbers: {listed((dim - 1, dim + 1))}"
            )
        elif dim > layer.head_dim:
            yield Hit(at, f"RoPE over {dim} of {layer.head_dim} features", f"write at most {layer.head_dim}")


def _rope_limits(spec: Spec) -> Iterator[Hit]:
    for loc, layer in written_layers(spec.model.layers):
        rope = layer.rope
        if isinstance(rope, Llama3Rope) and rope.low_freq_factor >= rope.high_freq_factor:
            message = "`low_freq_factor` must be less than `high_freq_factor`"
            yield Hit((*loc, "rope", "low_freq_factor"), message, "Llama 3.1 has 1.0 and 4.0")
        if isinstance(rope, YarnRope) and rope.beta_slow >= rope.beta_fast:
            message = "`beta_slow` must be less than `beta_fast`"
            yield Hit((*loc, "rope", "beta_slow"), message, "YaRN's own are 1 and 32")


def _coverage(spec: Spec) -> Iterator[Hit]:
    supported = listed(dict.fromkeys(row.coverage for row in LAYER_CAPABILITIES))
    yield from _unsupported(spec, _COVERAGES, f"supported coverage: {supported}; remove the field to keep every token")


def _layer_options(spec: Spec) -> Iterator[Hit]:
    yield from _unsupported(spec, _OPTIONS, "remove the field; attention without it is supported")


def _too_many_layers(spec: Spec) -> Iterator[Hit]:
    total = entry_layers(spec.model.layers)
    if total <= MAX_LAYERS:
        return
    largest = max(range(len(spec.model.layers)), key=lambda index: entry_layers(spec.model.layers[index : index + 1]))
    help = f"at most {MAX_LAYERS:,} are supported"
    shown = f"{total:,}" if total < 10**18 else "more than 10**18"
    yield Hit(("model", "layers", largest, "repeat"), f"the spec has {shown} layers", help)


RULES: tuple[Rule, ...] = (
    Rule("KVC104", "query heads divide into KV heads", _heads),
    Rule("KVC105", "RoPE rotates pairs inside the head", _rope_dims),
    Rule("KVC111", "the coverage is supported", _coverage),
    Rule("KVC112", "layer options are supported", _layer_options),
    Rule("KVC113", "the number of layers is bounded", _too_many_layers),
    Rule("KVC124", "RoPE's limits are in order", _rope_limits),
)
