"""Rules about how histories are stored: encodings, scales, twins, pages, overrides."""

from collections.abc import Iterator
from itertools import pairwise

from kvc.capabilities import LAYER_CAPABILITIES, PAGE_SIZES, PLANNED_ENCODINGS, LayerCapability
from kvc.encodings import ENCODINGS
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.checks.sites import storage_sites
from kvc.specs.models import GivenScales, GqaLayer, Spec
from kvc.specs.nodes import Loc
from kvc.specs.placement import entry_layers, override_ranges, written_layers
from kvc.specs.suggestions import listed, nearest, shortened


def _named_encodings(spec: Spec) -> Iterator[tuple[Loc, str]]:
    for site in storage_sites(spec):
        if "encoding" in site.own:
            yield (*site.loc, "encoding"), site.encoding


def _rows(layer: GqaLayer, encoding: str) -> list[LayerCapability]:
    rows = [row for row in LAYER_CAPABILITIES if row.kind == layer.kind and row.coverage == "full"]
    return [row for row in rows if row.encoding == encoding]


def _unknown_encoding(spec: Spec) -> Iterator[Hit]:
    for loc, name in _named_encodings(spec):
        if name in ENCODINGS:
            continue
        planned = name in PLANNED_ENCODINGS
        message = f"encoding `{name}` is not supported yet" if planned else f"unknown encoding `{shortened(name)}`"
        yield Hit(loc, message, f"supported: {listed(ENCODINGS)}" if planned else nearest(name, ENCODINGS))


def _encoding_of_dtype(spec: Spec) -> Iterator[Hit]:
    dtype = spec.model.dtype
    able = [row.encoding for row in LAYER_CAPABILITIES if dtype in row.dtypes]
    for loc, name in _named_encodings(spec):
        if name in ENCODINGS and name not in able:
            message = f"encoding `{name}` cannot hold the history of a {dtype} model"
            yield Hit(loc, message, f"supported with {dtype}: {listed(able)}")


def _page_size(spec: Spec) -> Iterator[Hit]:
    size = spec.cache.tokens_per_page
    if size not in PAGE_SIZES:
        close = sorted(sorted(PAGE_SIZES, key=lambda page: abs(page - size))[:2])
        help = f"nearest: {listed(close)} (a power of two from {PAGE_SIZES[0]} to {PAGE_SIZES[-1]})"
        yield Hit(("cache", "tokens_per_page"), f"pages of {size} tokens are not supported", help)


def _scales_missing(spec: Spec) -> Iterator[Hit]:
    for site in storage_sites(spec):
        if site.has_scales and site.scales is None and "encoding" in site.own:
            help = "add `scales: {source: unit}` for 1.0, or `{source: values, values: {k: ..., v: ...}}`"
            yield Hit((*site.loc, "encoding"), f"encoding `{site.encoding}` needs scales", help)


def _scales_unused(spec: Spec) -> Iterator[Hit]:
    cache, *overrides = storage_sites(spec)
    inherited = any(site.has_scales and "scales" not in site.own for site in overrides)
    with_scales = listed(name for name, encoding in ENCODINGS.items() if encoding.scale != "none")
    for site in (cache, *overrides):
        used = site.has_scales or (site is cache and inherited)
        if "scales" in site.own and not used:
            message = f"no layer uses these scales: encoding `{shortened(site.encoding)}` has none"
            yield Hit((*site.loc, "scales"), message, f"remove `scales`; encodings with scales: {with_scales}")


def _scale_lists(spec: Spec) -> Iterator[Hit]:
    for site in storage_sites(spec):
        if "scales" not in site.own or not isinstance(site.scales, GivenScales):
            continue
        for field in ("k", "v"):
            numbers = getattr(site.scales.values, field)
            if isinstance(numbers, list) and len(numbers) != site.layers:
                message = f"{len(numbers)} scales for {site.layers} layers"
                yield Hit((*site.loc, "scales", "values", field), message, "give one a layer, or one number for all")


def _twins(spec: Spec) -> Iterator[Hit]:
    layers = [layer for _, layer in written_layers(spec.model.layers)]
    for site in storage_sites(spec):
        retain = site.retain
        if "retain" not in site.own or retain is None or retain.first + retain.last == 0:
            continue
        twins = sorted({twin for layer in layers for row in _rows(layer, site.encoding) for twin in row.twins})
        if retain.encoding not in twins:
            pair = f"encoding `{shortened(site.encoding)}` of a {layers[0].kind} layer cannot have a twin"
            message = f"{pair} in `{shortened(retain.encoding)}`"
            help = f"remove `retain`; supported twins: {listed(twins) or 'none yet'}"
            yield Hit((*site.loc, "retain"), message, help)


def _override_range(spec: Spec) -> Iterator[Hit]:
    total = entry_layers(spec.model.layers)
    for index, ranges in enumerate(override_ranges(spec)):
        if ranges[-1].stop > total:
            message = f"there is no layer {ranges[-1].stop - 1:,}"
            yield Hit(("cache", "overrides", index, "layers"), message, f"layers are 0 to {total - 1:,}")


def _override_twice(spec: Spec) -> Iterator[Hit]:
    named = [(layers, index) for index, ranges in enumerate(override_ranges(spec)) for layers in ranges]
    for (before, _), (after, index) in pairwise(sorted(named, key=lambda pair: pair[0].start)):
        if after.start < before.stop:
            message = f"layer {after.start} is named by two overrides"
            yield Hit(("cache", "overrides", index, "layers"), message, "name each layer in one override")


def _override_empty(spec: Spec) -> Iterator[Hit]:
    for site in storage_sites(spec):
        if not site.own - {"layers"}:
            help = "give `encoding`, `scales` or `retain`, or remove the override"
            yield Hit(site.loc, "the override changes nothing", help)


RULES: tuple[Rule, ...] = (
    Rule("KVC101", "every encoding is known", _unknown_encoding),
    Rule("KVC102", "every encoding can hold the activation dtype", _encoding_of_dtype),
    Rule("KVC106", "the page size is supported", _page_size),
    Rule("KVC107", "encodings with scales have them", _scales_missing),
    Rule("KVC108", "scales are used", _scales_unused),
    Rule("KVC109", "lists of scales have one a layer", _scale_lists),
    Rule("KVC110", "retained tokens have a twin that the layer accepts", _twins),
    Rule("KVC114", "overrides name layers that exist", _override_range),
    Rule("KVC115", "a layer is named by one override", _override_twice),
    Rule("KVC125", "overrides change something", _override_empty),
)
