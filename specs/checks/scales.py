"""Rules about scales: wherever something is quantized, and nowhere else, the spec says where its scales come from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvc.encodings import ENCODINGS
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.checks.sites import storage_sites
from kvc.specs.models import CheckpointScales, GivenScales, Scales, Spec
from kvc.specs.nodes import Loc
from kvc.specs.placement import entry_layers, written_layers
from kvc.specs.resolve_storage import CONTEXT_FIELDS
from kvc.specs.suggestions import listed, shortened


@dataclass(frozen=True)
class Use:
    """One place where scales may be given: ``loc`` is that place, ``needed_at`` what makes them necessary.

    ``fields`` are those that have a scale there, ``layers`` the number of layers that a list is for, None where there
    is one number a field.
    """

    loc: Loc
    needed_at: Loc
    scales: Scales | None
    fields: tuple[str, ...]
    layers: int | None
    what: str
    reason: str
    is_stated: bool
    is_needed: bool


def _uses(spec: Spec) -> Iterator[Use]:
    yield from _of_storage(spec)
    yield _of_attention(spec)


def _of_attention(spec: Spec) -> Use:
    """Those of context attention, where there is any; lists go on with the draft layers."""
    attention, draft = spec.attention, spec.draft
    entries = written_layers(spec.model.layers)
    is_quantized = attention.context == "fp8"
    is_computed = bool(draft and draft.layer) or any(layer.kind != "recurrent" for _, layer in entries)
    return Use(
        loc=("attention", "scales"),
        needed_at=("attention", "context"),
        scales=attention.scales,
        fields=CONTEXT_FIELDS if is_quantized and is_computed else (),
        layers=entry_layers(spec.model.layers) + (draft.layers if draft else 0),
        what="fp8 context attention",
        reason="no layer has attention" if is_quantized else "context attention is `act`",
        is_stated=attention.scales is not None,
        is_needed=is_quantized and is_computed,
    )


def _of_storage(spec: Spec) -> Iterator[Use]:
    """The histories' and the twins', of the cache, each override and the draft."""
    cache, *others = storage_sites(spec)
    heirs = [site for site in others if "scales" not in site.own and site.scales is not None]
    inherited = tuple(dict.fromkeys(name for site in (cache, *heirs) for name in site.scale_fields))
    for site in (cache, *others):
        yield Use(
            loc=(*site.loc, "scales"),
            needed_at=(*site.loc, "encoding"),
            scales=site.scales,
            fields=inherited if site is cache else site.scale_fields,
            layers=None if site.loc == ("draft",) else site.layers,
            what=f"encoding `{site.encoding}`",
            reason=f"encoding `{shortened(site.encoding)}` has none",
            is_stated="scales" in site.own,
            is_needed="encoding" in site.own and bool(site.scale_fields),
        )
        retain = site.retain if "retain" in site.own else None
        if retain and retain.keeps_tokens:
            inherits = [other for other in others if site is cache and "retain" not in other.own]
            fields = (*site.twin_scale_fields, *(n for other in inherits for n in other.twin_scale_fields))
            yield Use(
                loc=(*site.loc, "retain", "scales"),
                needed_at=(*site.loc, "retain"),
                scales=retain.scales,
                fields=tuple(dict.fromkeys(fields)),
                layers=site.layers,
                what=f"encoding `{retain.encoding}` of retained tokens",
                reason=f"encoding `{retain.encoding}` has none",
                is_stated=retain.scales is not None,
                is_needed=bool(fields),
            )


def _sources_help(fields: Iterable[str]) -> str:
    values = ", ".join(f"{field}: ..." for field in fields)
    choices = (f"`{{source: values, values: {{{values}}}}}`", "`{source: checkpoint}`")
    return f"add `scales: {{source: unit}}` for 1.0, {choices[0]}, or {choices[1]}"


def _missing(spec: Spec) -> Iterator[Hit]:
    for use in _uses(spec):
        if use.is_needed and use.scales is None:
            yield Hit(use.needed_at, f"{use.what} needs scales", _sources_help(use.fields))


def _unused(spec: Spec) -> Iterator[Hit]:
    encodings = listed(name for name, encoding in ENCODINGS.items() if encoding.scale != "none")
    for use in _uses(spec):
        if use.is_stated and not use.fields:
            others = "" if "retain" in use.loc or use.loc[0] == "attention" else f"; encodings with scales: {encodings}"
            yield Hit(use.loc, f"no layer uses these scales: {use.reason}", f"remove `scales`{others}")


def _lists(spec: Spec) -> Iterator[Hit]:
    for use in _uses(spec):
        if not use.is_stated or not isinstance(use.scales, GivenScales):
            continue
        for field, numbers in use.scales.values:
            if isinstance(numbers, list) and use.layers is None:
                yield Hit((*use.loc, "values", field), "draft layers have one scale a field", "give one number")
            elif isinstance(numbers, list) and len(numbers) != use.layers:
                drafts = ", draft layers among them" if spec.draft and use.loc[0] == "attention" else ""
                message = f"{len(numbers)} scales for {use.layers} layers{drafts}"
                yield Hit((*use.loc, "values", field), message, "give one a layer, or one number for all")


def _fields(spec: Spec) -> Iterator[Hit]:
    """Numbers for every field that has a scale, names for some of them, and neither for any other."""
    for use in _uses(spec):
        if not use.is_stated or not use.fields:
            continue
        help = f"these layers need {listed(use.fields)}"
        if isinstance(use.scales, GivenScales):
            given = {field for field, numbers in use.scales.values if numbers is not None}
            if missing := sorted(set(use.fields) - given):
                yield Hit((*use.loc, "values"), f"no scale for {listed(missing)}", help)
            yield from _foreign((*use.loc, "values"), given - set(use.fields), help)
        if isinstance(use.scales, CheckpointScales):
            named = {field for field, name in use.scales.names if name is not None}
            yield from _foreign((*use.loc, "names"), named - set(use.fields), help)


def _foreign(loc: Loc, fields: set[str], help: str) -> Iterator[Hit]:
    for field in sorted(fields)[:1]:
        yield Hit((*loc, field), f"no layer has a scale for `{field}`", help)


RULES: tuple[Rule, ...] = (
    Rule("KVC107", "what is quantized has scales", _missing),
    Rule("KVC108", "scales are used", _unused),
    Rule("KVC109", "lists of scales have one a layer", _lists),
    Rule("KVC130", "scales are given for the fields that have one", _fields),
)
