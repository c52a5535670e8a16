"""Rules about encodings: which layer can store what, how wide its rows are, and mixed caches by name."""

from collections.abc import Iterator

from kvc.capabilities import INDEX_ENCODINGS, PRECISION, STORAGE_CAPABILITIES, twin_encodings
from kvc.encodings import ENCODINGS, MIXED, Field, page_layout
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.checks.sites import Site, Written, storage_sites
from kvc.specs.models import Spec
from kvc.specs.nodes import Loc
from kvc.specs.placement import written_layers
from kvc.specs.suggestions import listed, nearest, shortened

# What the rows of some layer kind can be stored in.
ROW_ENCODINGS = tuple(name for name in ENCODINGS if any(row.encoding == name for row in STORAGE_CAPABILITIES))


def _named(spec: Spec) -> Iterator[tuple[Loc, str]]:
    """Every encoding that the spec names, and where."""
    for site in storage_sites(spec):
        if "encoding" in site.own:
            yield (*site.loc, "encoding"), site.encoding
        if "retain" in site.own and site.retain and site.retain.encoding:
            yield (*site.loc, "retain", "encoding"), site.retain.encoding
    for loc, layer in written_layers(spec.model.layers):
        indexer = getattr(layer, "indexer", None)
        if indexer:
            yield (*loc, "indexer", "encoding"), indexer.encoding


def _unknown(spec: Spec) -> Iterator[Hit]:
    for loc, name in _named(spec):
        if name in MIXED and loc[-2] != "retain" and loc[0] == "cache":
            continue
        if name not in ENCODINGS:
            choices = INDEX_ENCODINGS if "indexer" in loc else ROW_ENCODINGS
            yield Hit(loc, f"unknown encoding `{shortened(name)}`", nearest(name, choices))


def _mixed(spec: Spec) -> Iterator[Hit]:
    """Names that `expand_aliases` left: without `retain`, or with another encoding there."""
    for site in storage_sites(spec):
        pair = MIXED.get(site.encoding)
        if pair is None or "encoding" not in site.own or site.loc == ("draft",):
            continue
        if site.retain is None or "retain" not in site.own:
            message = f"`{site.encoding}` is {pair[0]} with retained tokens in {pair[1]}; how many is missing"
            yield Hit((*site.loc, "encoding"), message, "add `retain: {first: 64, last: 256}`")
        else:
            message = f"`{site.encoding}` keeps retained tokens in {pair[1]}, not in {site.retain.encoding}"
            yield Hit((*site.loc, "retain", "encoding"), message, "remove `retain.encoding`")


def _retain_encoding(spec: Spec) -> Iterator[Hit]:
    for site in storage_sites(spec):
        retain = site.retain if "retain" in site.own else None
        if retain and retain.encoding is None and site.encoding not in MIXED and retain.keeps_tokens:
            help = f"add `encoding:`, one of {listed(twin_choices(site)) or 'none'}"
            yield Hit((*site.loc, "retain"), "`retain` does not say in which encoding", help)


def twin_choices(site: Site) -> list[str]:
    """Encodings that a twin of the site's histories may have."""
    kinds = {layer.kind for layer in site.covers if layer.has_twin}
    rows = [row for row in STORAGE_CAPABILITIES if row.kind in kinds and row.encoding == site.encoding]
    return list(dict.fromkeys(twin for row in rows for twin in row.twins))


def _stored(site: Site, decided: bool) -> Iterator[tuple[Loc, str, Written]]:
    """Where the site makes a layer's rows be stored, in which encoding; what it inherits is judged where it is said.

    Not ``decided``: nowhere else is anything said about its layers, so all of it is judged at the site.
    """
    for name, encoding, layers in _encodings(site):
        if encoding not in ENCODINGS or not (name in site.own or not decided):
            continue
        loc = (*site.loc, *_PLACES[name]) if name in site.own else site.loc
        yield from ((loc, encoding, layer) for layer in layers if layer.widths)


_PLACES = {"encoding": ("encoding",), "retain": ("retain", "encoding")}


def _encodings(site: Site) -> Iterator[tuple[str, str, tuple[Written, ...]]]:
    """Which field of the site says which encoding of which layers; a twin's where its history may have it."""
    for encoding, layers in site.encodings.items():
        yield ("encoding" if encoding == site.encoding else "retain"), encoding, layers
    if site.high:
        able = (layer for layer in site.covers if layer.has_twin)
        yield (
            "retain",
            site.high,
            tuple(layer for layer in able if site.high in twin_encodings(layer.kind, site.encoding)),
        )


def _all_stored(spec: Spec) -> Iterator[tuple[Loc, str, Written]]:
    cache, *others = storage_sites(spec)
    yield from _stored(cache, decided=True)
    for site in others:
        yield from _stored(site, site.loc[0] != "cache" or site.is_spoken_for_by(cache))


def _first_of_each(found: Iterator[tuple[Loc, str, Written]]) -> Iterator[tuple[Loc, str, Written]]:
    """Each (place, encoding, kind, widths) once."""
    seen = set()
    for loc, encoding, layer in found:
        key = (loc, encoding, layer.kind, layer.widths)
        if key not in seen:
            seen.add(key)
            yield loc, encoding, layer


def _of_kind(spec: Spec) -> Iterator[Hit]:
    """One finding a place and kind of layer."""
    dtype = spec.model.dtype
    seen: set[tuple[Loc, str]] = set()
    for loc, encoding, layer in _all_stored(spec):
        rows = [row for row in STORAGE_CAPABILITIES if row.kind == layer.kind]
        able = [row.encoding for row in rows if dtype in row.dtypes]
        if encoding in able or (loc, layer.kind) in seen:
            continue
        seen.add((loc, layer.kind))
        if encoding in {row.encoding for row in rows}:
            message, of = f"encoding `{encoding}` cannot hold the history of a {dtype} model", f" with {dtype}"
        else:
            message, of = f"encoding `{encoding}` cannot store the rows of a {layer.kind} layer", ""
        yield Hit(loc, message, f"supported{of}: {listed(able)}")


def _fits(spec: Spec) -> Iterator[Hit]:
    kinds = {(row.kind, row.encoding) for row in STORAGE_CAPABILITIES}
    for loc, encoding, layer in _first_of_each(_all_stored(spec)):
        if (layer.kind, encoding) not in kinds:
            continue
        why = _misfit(encoding, layer)
        if why:
            message = f"encoding `{encoding}` cannot store a {layer.kind} layer of this spec: {why}"
            rows = (row for row in STORAGE_CAPABILITIES if row.kind == layer.kind and spec.model.dtype in row.dtypes)
            able = [row.encoding for row in rows if not _misfit(row.encoding, layer)]
            near = sorted(able, key=lambda name: abs(PRECISION[name] - PRECISION[encoding]))
            yield Hit(loc, message, f"nearest: {listed(near[:2])}, for all layers or for those by an override")


def _misfit(encoding: str, layer: Written) -> str:
    """Why the encoding has no layout for the layer's rows; empty where it has."""
    try:
        page_layout(ENCODINGS[encoding], tuple(Field(*width) for width in layer.widths), 1)
    except ValueError as error:
        return str(error)
    return ""


def _index_keys(spec: Spec) -> Iterator[Hit]:
    for loc, layer in written_layers(spec.model.layers):
        indexer = getattr(layer, "indexer", None)
        if indexer is None or indexer.encoding not in ENCODINGS:
            continue
        if indexer.encoding not in INDEX_ENCODINGS:
            message = f"encoding `{indexer.encoding}` cannot store index keys"
            yield Hit((*loc, "indexer", "encoding"), message, f"supported: {listed(INDEX_ENCODINGS)}")
            continue
        try:
            page_layout(ENCODINGS[indexer.encoding], (Field("key", 1, indexer.head_dim),), 1)
        except ValueError as error:
            message = f"encoding `{indexer.encoding}` cannot store index keys of {indexer.head_dim}: {error}"
            yield Hit((*loc, "indexer", "head_dim"), message, "bf16 and fp32 take any width")


RULES: tuple[Rule, ...] = (
    Rule("KVC101", "every encoding is known", _unknown),
    Rule("KVC102", "every encoding can store the layer and hold the activation dtype", _of_kind),
    Rule("KVC141", "rows divide into the encoding's groups", _fits),
    Rule("KVC127", "index keys have an encoding for them", _index_keys),
    Rule("KVC128", "names of mixed caches come with retained tokens", _mixed),
    Rule("KVC129", "retained tokens have an encoding", _retain_encoding),
)
