"""Rules about how histories are stored: scales, twins, pages, overrides."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from kvc.capabilities import PAGE_SIZES
from kvc.encodings import ENCODINGS
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.checks.sites import storage_sites
from kvc.specs.checks.storage import twin_choices
from kvc.specs.models import GivenScales, Spec
from kvc.specs.nodes import Loc
from kvc.specs.placement import entry_layers, override_ranges
from kvc.specs.suggestions import listed, shortened


def _page_size(spec: Spec) -> Iterator[Hit]:
    size = spec.cache.tokens_per_page
    if size not in PAGE_SIZES:
        close = sorted(sorted(PAGE_SIZES, key=lambda page: abs(page - size))[:2])
        help = f"nearest: {listed(close)} (a power of two from {PAGE_SIZES[0]} to {PAGE_SIZES[-1]})"
        yield Hit(("cache", "tokens_per_page"), f"pages of {size} tokens are not supported", help)


def _fields_help(fields: Iterable[str]) -> str:
    values = ", ".join(f"{field}: ..." for field in fields)
    return f"add `scales: {{source: unit}}` for 1.0, or `{{source: values, values: {{{values}}}}}`"


def _scales_missing(spec: Spec) -> Iterator[Hit]:
    for site in storage_sites(spec):
        if site.scale_fields and site.scales is None and "encoding" in site.own:
            message = f"encoding `{site.encoding}` needs scales"
            yield Hit((*site.loc, "encoding"), message, _fields_help(site.scale_fields))
        retain = site.retain
        if retain and "retain" in site.own and site.twin_scale_fields and retain.scales is None:
            message = f"encoding `{retain.encoding}` of retained tokens needs scales"
            yield Hit((*site.loc, "retain"), message, _fields_help(site.twin_scale_fields))


def _scales_unused(spec: Spec) -> Iterator[Hit]:
    cache, *others = storage_sites(spec)
    inherited = any(site.scale_fields and "scales" not in site.own for site in others)
    with_scales = listed(name for name, encoding in ENCODINGS.items() if encoding.scale != "none")
    for site in (cache, *others):
        used = site.scale_fields or (site is cache and inherited)
        if "scales" in site.own and not used:
            message = f"no layer uses these scales: encoding `{shortened(site.encoding)}` has none"
            yield Hit((*site.loc, "scales"), message, f"remove `scales`; encodings with scales: {with_scales}")
        retain = site.retain if "retain" in site.own else None
        if retain and retain.scales and not site.twin_scale_fields:
            message = f"no layer uses these scales: encoding `{retain.encoding}` has none"
            yield Hit((*site.loc, "retain", "scales"), message, "remove `scales`")


def _given_scales(spec: Spec) -> Iterator[tuple[Loc, GivenScales, tuple[str, ...], int]]:
    """Scales in numbers: where, what, for which fields and how many layers."""
    for site in storage_sites(spec):
        if "scales" in site.own and isinstance(site.scales, GivenScales):
            yield (*site.loc, "scales"), site.scales, site.scale_fields, site.layers
        retain = site.retain if "retain" in site.own else None
        if retain and isinstance(retain.scales, GivenScales):
            yield (*site.loc, "retain", "scales"), retain.scales, site.twin_scale_fields, site.layers


def _scale_lists(spec: Spec) -> Iterator[Hit]:
    for loc, scales, _, layers in _given_scales(spec):
        for field, numbers in scales.values:
            if isinstance(numbers, list) and loc[0] == "draft":
                message = "draft layers have one scale a field"
                yield Hit((*loc, "values", field), message, "give one number")
            elif isinstance(numbers, list) and len(numbers) != layers:
                message = f"{len(numbers)} scales for {layers} layers"
                yield Hit((*loc, "values", field), message, "give one a layer, or one number for all")


def _scale_fields(spec: Spec) -> Iterator[Hit]:
    """Numbers for every field that has a scale, and for no other one."""
    for loc, scales, fields, _ in _given_scales(spec):
        given = {field for field, numbers in scales.values if numbers is not None}
        missing, unused = sorted(set(fields) - given), sorted(given - set(fields))
        if fields and missing:
            yield Hit((*loc, "values"), f"no scale for {listed(missing)}", f"these layers need {listed(fields)}")
        if fields and unused:
            message = f"no layer has a scale for `{unused[0]}`"
            yield Hit((*loc, "values", unused[0]), message, f"these layers need {listed(fields)}")


def _twins(spec: Spec) -> Iterator[Hit]:
    for site in storage_sites(spec):
        retain = site.retain
        if "retain" not in site.own or retain is None or retain.first + retain.last == 0 or retain.encoding is None:
            continue
        able = [layer for layer in site.covers if layer.has_twin]
        if not able:
            kinds = listed(dict.fromkeys(f"{layer.kind} {layer.coverage}" for layer in site.covers))
            yield Hit((*site.loc, "retain"), f"no layer here can have a twin: {kinds}", "remove `retain`")
        elif retain.encoding not in twin_choices(site):
            pair = f"encoding `{shortened(site.encoding)}` of a {able[0].kind} layer cannot have a twin"
            message = f"{pair} in `{shortened(retain.encoding)}`"
            help = f"remove `retain`; supported twins: {listed(twin_choices(site)) or 'none'}"
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
        if site.loc[1:2] == ("overrides",) and not site.own - {"layers"}:
            help = "give `encoding`, `scales` or `retain`, or remove the override"
            yield Hit(site.loc, "the override changes nothing", help)


RULES: tuple[Rule, ...] = (
    Rule("KVC106", "the page size is supported", _page_size),
    Rule("KVC107", "encodings with scales have them", _scales_missing),
    Rule("KVC108", "scales are used", _scales_unused),
    Rule("KVC109", "lists of scales have one a layer", _scale_lists),
    Rule("KVC130", "numbers are given for every field with a scale", _scale_fields),
    Rule("KVC110", "retained tokens have a twin that the layer accepts", _twins),
    Rule("KVC114", "overrides name layers that exist", _override_range),
    Rule("KVC115", "a layer is named by one override", _override_twice),
    Rule("KVC125", "overrides change something", _override_empty),
)
