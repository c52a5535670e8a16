"""What a well-formed spec may not say: one row a rule, with its code; every hit names a supported choice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from kvc.capabilities import (
    ARCHS,
    LAYER_CAPABILITIES,
    MAX_LAYERS,
    PAGE_SIZES,
    PASSES,
    PLANNED_ENCODINGS,
    LayerCapability,
)
from kvc.encodings import ENCODINGS
from kvc.specs.models import GivenScales, GqaLayer, Llama3Rope, Retain, Scales, Spec, YarnRope
from kvc.specs.nodes import Loc
from kvc.specs.placement import entry_layers, override_ranges, written_layers
from kvc.specs.suggestions import listed, nearest


@dataclass(frozen=True)
class Hit:
    """A rule broken at ``loc``."""

    loc: Loc
    message: str
    help: str


@dataclass(frozen=True)
class Rule:
    """``find`` yields a hit for every place of a spec that breaks the rule ``title``."""

    code: str
    title: str
    find: Callable[[Spec], Iterator[Hit]]


@dataclass(frozen=True)
class Site:
    """A place that sets storage: `cache`, or one of its overrides with what it inherits from `cache`."""

    loc: Loc
    encoding: str
    encoding_loc: Loc
    scales: Scales | None
    own_scales: bool
    retain: Retain | None
    layers: int


def _sites(spec: Spec) -> Iterator[Site]:
    cache, at = spec.cache, ("cache",)
    total = entry_layers(spec.model.layers)
    has_scales = cache.scales is not None
    yield Site(at, cache.encoding, (*at, "encoding"), cache.scales, has_scales, cache.retain, total)
    for index, (override, ranges) in enumerate(zip(cache.overrides, override_ranges(spec), strict=True)):
        loc: Loc = (*at, "overrides", index)
        given = override.model_fields_set
        yield Site(
            loc,
            override.encoding or cache.encoding,
            (*loc, "encoding") if override.encoding else loc,
            override.scales or cache.scales,
            override.scales is not None,
            override.retain if "retain" in given else cache.retain,
            sum(map(len, ranges)),
        )


def _named_encodings(spec: Spec) -> Iterator[tuple[Loc, str]]:
    for site in _sites(spec):
        if len(site.encoding_loc) > len(site.loc):
            yield site.encoding_loc, site.encoding


def _has_scales(encoding: str) -> bool:
    return encoding in ENCODINGS and ENCODINGS[encoding].scale != "none"


def _rows(layer: GqaLayer, encoding: str) -> list[LayerCapability]:
    rows = [row for row in LAYER_CAPABILITIES if row.kind == layer.kind and row.coverage == "full"]
    return [row for row in rows if row.encoding == encoding]


# Encodings, scales, twins


def _unknown_encoding(spec: Spec) -> Iterator[Hit]:
    for loc, name in _named_encodings(spec):
        if name in ENCODINGS:
            continue
        planned = name in PLANNED_ENCODINGS
        message = f"encoding `{name}` is not supported yet" if planned else f"unknown encoding `{name}`"
        yield Hit(loc, message, f"supported: {listed(ENCODINGS)}" if planned else nearest(name, ENCODINGS))


def _encoding_of_dtype(spec: Spec) -> Iterator[Hit]:
    dtype = spec.model.dtype
    able = [row.encoding for row in LAYER_CAPABILITIES if dtype in row.dtypes]
    for loc, name in _named_encodings(spec):
        if name in ENCODINGS and name not in able:
            message = f"encoding `{name}` cannot hold the history of a {dtype} model"
            yield Hit(loc, message, f"supported with {dtype}: {listed(able)}")


def _scales_missing(spec: Spec) -> Iterator[Hit]:
    for site in _sites(spec):
        if _has_scales(site.encoding) and site.scales is None:
            help = "add `scales: {source: unit}` for 1.0, or `{source: values, values: {k: ..., v: ...}}`"
            yield Hit(site.encoding_loc, f"encoding `{site.encoding}` needs scales", help)


def _scales_unused(spec: Spec) -> Iterator[Hit]:
    sites = list(_sites(spec))
    inherited = any(_has_scales(site.encoding) and not site.own_scales for site in sites[1:])
    with_scales = listed(name for name in ENCODINGS if _has_scales(name))
    for site in sites:
        used = _has_scales(site.encoding) or (site is sites[0] and inherited)
        if site.own_scales and not used:
            message = f"no layer uses these scales: encoding `{site.encoding}` has none"
            yield Hit((*site.loc, "scales"), message, f"remove `scales`; encodings with scales: {with_scales}")


def _scale_lists(spec: Spec) -> Iterator[Hit]:
    for site in _sites(spec):
        if not (site.own_scales and isinstance(site.scales, GivenScales)):
            continue
        for field in ("k", "v"):
            numbers = getattr(site.scales.values, field)
            if isinstance(numbers, list) and len(numbers) != site.layers:
                message = f"{len(numbers)} scales for {site.layers} layers"
                yield Hit((*site.loc, "scales", "values", field), message, "give one a layer, or one number for all")


def _twins(spec: Spec) -> Iterator[Hit]:
    layers = [layer for _, layer in written_layers(spec.model.layers)]
    for site in _sites(spec):
        retain = site.retain
        if retain is None or retain.first + retain.last == 0:
            continue
        twins = sorted({twin for layer in layers for row in _rows(layer, site.encoding) for twin in row.twins})
        if retain.encoding not in twins:
            message = (
                f"encoding `{site.encoding}` of a {layers[0].kind} layer cannot have a twin in `{retain.encoding}`"
            )
            yield Hit(
                (*site.loc, "retain"), message, f"remove `retain`; supported twins: {listed(twins) or 'none yet'}"
            )


# Layers


def _too_many_layers(spec: Spec) -> Iterator[Hit]:
    total = entry_layers(spec.model.layers)
    if total <= MAX_LAYERS:
        return
    largest = max(range(len(spec.model.layers)), key=lambda index: entry_layers(spec.model.layers[index : index + 1]))
    help = f"at most {MAX_LAYERS:,} are supported"
    yield Hit(("model", "layers", largest, "repeat"), f"the spec has {total:,} layers", help)


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


def _coverage(spec: Spec) -> Iterator[Hit]:
    supported = listed(dict.fromkeys(row.coverage for row in LAYER_CAPABILITIES))
    yield from _unsupported(spec, _COVERAGES, f"supported coverage: {supported}; remove the field to keep every token")


def _layer_options(spec: Spec) -> Iterator[Hit]:
    yield from _unsupported(spec, _OPTIONS, "remove the field; attention without it is supported")


# Overrides


def _override_range(spec: Spec) -> Iterator[Hit]:
    total = entry_layers(spec.model.layers)
    for index, ranges in enumerate(override_ranges(spec)):
        if ranges[-1].stop > total:
            message = f"there is no layer {ranges[-1].stop - 1:,}"
            yield Hit(("cache", "overrides", index, "layers"), message, f"layers are 0 to {total - 1:,}")


def _override_twice(spec: Spec) -> Iterator[Hit]:
    for field in ("encoding", "scales", "retain"):
        setting = [
            (layers, index)
            for index, (override, ranges) in enumerate(zip(spec.cache.overrides, override_ranges(spec), strict=True))
            if field in override.model_fields_set
            for layers in ranges
        ]
        for (before, _), (after, index) in pairwise(sorted(setting, key=lambda pair: pair[0].start)):
            if after.start < before.stop:
                message = f"layer {after.start} has its `{field}` overridden twice"
                yield Hit(("cache", "overrides", index, "layers"), message, "name each layer in one override")


def _override_empty(spec: Spec) -> Iterator[Hit]:
    for index, override in enumerate(spec.cache.overrides):
        if override.model_fields_set == {"layers"}:
            help = "give `encoding`, `scales` or `retain`, or remove the override"
            yield Hit(("cache", "overrides", index), "the override changes nothing", help)


# Target, memory, compilation


def _page_size(spec: Spec) -> Iterator[Hit]:
    size = spec.cache.tokens_per_page
    if size not in PAGE_SIZES:
        close = sorted(sorted(PAGE_SIZES, key=lambda page: abs(page - size))[:2])
        help = f"nearest: {listed(close)} (a power of two from {PAGE_SIZES[0]} to {PAGE_SIZES[-1]})"
        yield Hit(("cache", "tokens_per_page"), f"pages of {size} tokens are not supported", help)


def _sequence_length(spec: Spec) -> Iterator[Hit]:
    length, limit = spec.target.max_seq_len, spec.model.max_position
    if length > limit:
        message = f"sequences of {length:,} tokens, but the model has {limit:,} positions"
        yield Hit(("target", "max_seq_len"), message, f"write at most {limit}")


def _buckets(spec: Spec) -> Iterator[Hit]:
    buckets, most = spec.target.buckets, spec.target.max_sequences
    if buckets is None:
        return
    if any(before >= after for before, after in pairwise(buckets)):
        sorted_once = ", ".join(map(str, sorted(set(buckets))))
        yield Hit(("target", "buckets"), "buckets must ascend", f"write [{sorted_once}]")
    elif buckets[-1] != most:
        message = f"the last bucket is {buckets[-1]}, but a step has up to {most} sequences"
        yield Hit(("target", "buckets", len(buckets) - 1), message, f"end with `max_sequences`, {most}")


def _arch(spec: Spec) -> Iterator[Hit]:
    device, arch = spec.target.device, spec.target.arch
    if device == "cuda" and arch is None:
        yield Hit(("target", "arch"), "device `cuda` needs `arch`", f"add one of {listed(ARCHS)}")
    elif device == "cpu" and arch is not None:
        yield Hit(("target", "arch"), f"a cpu has no architecture `{arch}`", "remove `arch`, or write `device: cuda`")
    elif arch is not None and arch not in ARCHS:
        yield Hit(("target", "arch"), f"unknown architecture `{arch}`", nearest(arch, ARCHS))


def _step_size(spec: Spec) -> Iterator[Hit]:
    tokens, sequences = spec.target.max_tokens, spec.target.max_sequences
    if tokens < sequences:
        message = f"a step of {tokens} tokens cannot hold one token of each of {sequences} sequences"
        yield Hit(("target", "max_tokens"), message, f"write at least {sequences}")


def _memory(spec: Spec) -> Iterator[Hit]:
    memory = spec.memory
    if memory and memory.reserve >= memory.device:
        field = "reserve" if memory.reserve else "device"
        message = f"{memory.device:,} bytes less a reserve of {memory.reserve:,} leave nothing for the cache"
        yield Hit(("memory", field), message, "write a smaller `reserve` or a larger `device`")


def _passes(spec: Spec) -> Iterator[Hit]:
    available = [row.name for row in PASSES if row.available]
    known = {row.name for row in PASSES}
    for index, name in enumerate(spec.compile.require):
        if name not in available:
            message = f"pass `{name}` is not available yet" if name in known else f"unknown pass `{name}`"
            yield Hit(("compile", "require", index), message, nearest(name, available, "passes"))


def _context(spec: Spec) -> Iterator[Hit]:
    if spec.attention.context != "act":
        message = f"context attention in {spec.attention.context} is not supported yet"
        yield Hit(("attention", "context"), message, "supported: `act`, the activation dtype")


def _draft(spec: Spec) -> Iterator[Hit]:
    if spec.draft is not None:
        yield Hit(("draft", "kind"), f"draft layers (`{spec.draft.kind}`) are not supported yet", "remove `draft`")


RULES: tuple[Rule, ...] = (
    Rule("KVC101", "every encoding is known", _unknown_encoding),
    Rule("KVC102", "every encoding can hold the activation dtype", _encoding_of_dtype),
    Rule("KVC104", "query heads divide into KV heads", _heads),
    Rule("KVC105", "RoPE rotates pairs inside the head", _rope_dims),
    Rule("KVC106", "the page size is supported", _page_size),
    Rule("KVC107", "encodings with scales have them", _scales_missing),
    Rule("KVC108", "scales are used", _scales_unused),
    Rule("KVC109", "lists of scales have one a layer", _scale_lists),
    Rule("KVC110", "retained tokens have a twin that the layer accepts", _twins),
    Rule("KVC111", "the coverage is supported", _coverage),
    Rule("KVC112", "layer options are supported", _layer_options),
    Rule("KVC113", "the number of layers is bounded", _too_many_layers),
    Rule("KVC114", "overrides name layers that exist", _override_range),
    Rule("KVC115", "a field of a layer is overridden once", _override_twice),
    Rule("KVC116", "sequences fit the model's positions", _sequence_length),
    Rule("KVC117", "buckets ascend to max_sequences", _buckets),
    Rule("KVC118", "the architecture fits the device", _arch),
    Rule("KVC119", "required passes exist", _passes),
    Rule("KVC120", "context attention is supported", _context),
    Rule("KVC121", "draft layers are supported", _draft),
    Rule("KVC122", "memory is left for the cache", _memory),
    Rule("KVC123", "a step holds one token of each sequence", _step_size),
    Rule("KVC124", "RoPE's limits are in order", _rope_limits),
    Rule("KVC125", "overrides change something", _override_empty),
)
