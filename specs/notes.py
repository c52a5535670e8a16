"""What a valid spec's mixed cache means that its author may not expect: notes, at the line that they are about."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvc.capabilities import MixedLayer, mixed_layer
from kvc.diagnostics import Diagnostic, Source
from kvc.specs.checks.rule import Hit
from kvc.specs.checks.sites import Site, storage_sites
from kvc.specs.models import Retain, Spec
from kvc.specs.nodes import Loc, document_path, key_source, place
from kvc.specs.placement import draft_layer, override_ranges, written_layers
from kvc.specs.resolve_storage import Storage
from kvc.specs.resolved import LayerRun
from kvc.specs.suggestions import listed
from kvc.specs.yaml_reader import Document

_MOST = 4  # ranges of layers that a note names


@dataclass(frozen=True)
class Subject:
    """A checked spec and the layers that it was resolved to; ``written``: what is written at the source of each."""

    spec: Spec
    runs: tuple[LayerRun, ...]
    written: dict[Source, Loc]


@dataclass(frozen=True)
class Note:
    """``find`` yields a hit for every place that ``title`` is true of."""

    code: str
    title: str
    find: Callable[[Subject], Iterator[Hit]]


def layer_numbers(layers: list[range]) -> str:
    """`layers 0-2, 7`, of ascending ranges; cut where there are many."""
    joined: list[range] = []
    for part in layers:
        if joined and joined[-1].stop == part.start:
            joined[-1] = range(joined[-1].start, part.stop)
        else:
            joined.append(part)
    total = sum(map(len, joined))
    names = [f"{part.start}" if len(part) == 1 else f"{part.start}-{part.stop - 1}" for part in joined]
    more = f", ... ({total:,} layers)" if len(names) > _MOST else ""
    return f"{'layer' if total == 1 else 'layers'} {', '.join(names[:_MOST])}{more}"


@dataclass(frozen=True)
class _Plain:
    """Equal layers without a twin."""

    loc: Loc
    what: str
    encoding: str
    row: MixedLayer


def _plain_layers(subject: Subject) -> Iterator[Hit]:
    """One note a spec line and encoding."""
    storage = Storage(subject.spec.cache, override_ranges(subject.spec))
    found: dict[_Plain, list[range]] = {}
    for run in subject.runs if any(run.retain for run in subject.runs) else ():
        row = mixed_layer(run.shape.capability, run.coverage.kind, run.domain)
        retain = storage.of(run.first).retain if run.domain == "target" else None
        if not row.accepts_twin and (run.domain == "draft" or (retain and retain.keeps_tokens)):
            plain = _Plain(subject.written[run.source], _what(run), run.encoding, row)
            found.setdefault(plain, []).append(run.layers)
    highs = {site.high for site in storage_sites(subject.spec) if site.high}
    for plain, layers in found.items():
        yield _about(plain, layers, highs)


def _what(run: LayerRun) -> str:
    if run.domain == "draft":
        return f"draft, {run.shape.kind}"
    return run.shape.capability if run.coverage.kind == "recurrent" else f"{run.shape.capability} {run.coverage}"


def _about(plain: _Plain, layers: list[range], highs: set[str]) -> Hit:
    has, keeps = ("has", "keeps") if sum(map(len, layers)) == 1 else ("have", "keep")
    what = "a state" if plain.row.pool == "own" else f"a plain cache in `{plain.encoding}`"
    message = f"{layer_numbers(layers)} ({plain.what}) {has} no twin and {keeps} {what}: {plain.row.why}"
    if plain.row.pool == "own":
        return Hit(plain.loc, message, "`retain` changes nothing there")
    is_high = "" if plain.encoding in highs else ", not its own"
    choose = "`draft.encoding`" if plain.loc[0] == "draft" else "`encoding` of an override"
    return Hit(plain.loc, message, f"the high encoding is {listed(sorted(highs))}{is_high}; {choose} chooses another")


def _window_beside(subject: Subject) -> Iterator[Hit]:
    """The plain rows beside compressed ones."""
    found: dict[tuple[Loc, str], list[range]] = {}
    for run in subject.runs:
        if run.retain and run.coverage.kind == "compressed":
            found.setdefault((subject.written[run.source], run.retain.encoding), []).append(run.layers)
    for (loc, encoding), layers in found.items():
        message = f"windows of {layer_numbers(layers)} have no twin and keep plain caches in `{encoding}`"
        yield Hit(loc, message, "compressed rows have one")


def _without_twin(subject: Subject) -> Iterator[Hit]:
    yield from _plain_layers(subject)
    yield from _window_beside(subject)


def _retaining(spec: Spec) -> Iterator[tuple[Loc, Site, Retain]]:
    """Where `retain` is written."""
    for site in storage_sites(spec):
        if "retain" in site.own and site.retain:
            yield (*site.loc, "retain"), site, site.retain


def _nothing(subject: Subject) -> Iterator[Hit]:
    for loc, site, retain in _retaining(subject.spec):
        if not retain.keeps_tokens:
            message = f"`first: 0, last: 0` retain nothing: no twin, a plain cache in `{site.encoding}`"
            yield Hit(loc, message, "remove `retain`, or write how many tokens are retained")


def _everything(subject: Subject) -> Iterator[Hit]:
    longest = subject.spec.target.max_seq_len
    for loc, _, retain in _retaining(subject.spec):
        if retain.first + retain.last >= longest:
            message = (
                f"everything is retained: first {retain.first:,} + last {retain.last:,} tokens are at least "
                f"max_seq_len, {longest:,}"
            )
            yield Hit(loc, message, f"a plain cache in `{retain.encoding}` reads the same rows in fewer bytes")


def _whole_pages(subject: Subject) -> Iterator[Hit]:
    size = subject.spec.cache.tokens_per_page
    for loc, _, retain in _retaining(subject.spec):
        if retain.unit == "page" and retain.keeps_tokens and (retain.first % size or retain.last % size):
            first = -(-retain.first // size) * size
            message = (
                f"whole pages of {size:,} tokens are retained: the first {first:,} and, by the length, the last "
                f"{retain.last:,} to {retain.last + size - 1:,}"
            )
            yield Hit(
                loc, message, f"write multiples of {size:,}, or `unit: token` for {retain.first:,} and {retain.last:,}"
            )


NOTES: tuple[Note, ...] = (
    Note("KVC145", "layers of a mixed cache that have no twin", _without_twin),
    Note("KVC146", "a mixed cache that retains nothing", _nothing),
    Note("KVC147", "a mixed cache that retains everything", _everything),
    Note("KVC148", "retained pages that hold more than the retained tokens", _whole_pages),
)


def _written(spec: Spec, document: Document) -> dict[Source, Loc]:
    locs = [loc for loc, _ in written_layers(spec.model.layers)]
    if spec.draft:
        locs.append(draft_layer(spec)[1])
    return {key_source(document.root, loc): loc for loc in locs}


def notes_of(spec: Spec, document: Document, runs: tuple[LayerRun, ...]) -> tuple[Diagnostic, ...]:
    """Notes about a checked spec that was resolved to ``runs``, in the order of the file."""
    subject = Subject(spec, runs, _written(spec, document))
    root = document.root
    found = (
        Diagnostic(note.code, hit.message, place(root, hit.loc), document_path(root, hit.loc), hit.help, "note")
        for note in NOTES
        for hit in note.find(subject)
    )
    return tuple(sorted(found, key=lambda note: (note.source.line, note.source.column) if note.source else (0, 0)))
