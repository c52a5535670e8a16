"""Rules about how histories are stored: pages and overrides."""

from collections.abc import Iterator
from itertools import pairwise

from kvc.capabilities import PAGE_SIZES
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.checks.sites import storage_sites
from kvc.specs.models import Spec
from kvc.specs.placement import entry_layers, override_ranges
from kvc.specs.suggestions import listed


def _page_size(spec: Spec) -> Iterator[Hit]:
    size = spec.cache.tokens_per_page
    if size not in PAGE_SIZES:
        close = sorted(sorted(PAGE_SIZES, key=lambda page: abs(page - size))[:2])
        help = f"nearest: {listed(close)} (a power of two from {PAGE_SIZES[0]} to {PAGE_SIZES[-1]})"
        yield Hit(("cache", "tokens_per_page"), f"pages of {size} tokens are not supported", help)


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
    Rule("KVC114", "overrides name layers that exist", _override_range),
    Rule("KVC115", "a layer is named by one override", _override_twice),
    Rule("KVC125", "overrides change something", _override_empty),
)
