"""`docs/support.md`: what can be planned and what can be compiled, from the capability tables.

``python -m kvc.report.support > docs/support.md`` writes it; a test compares.
"""

from collections.abc import Iterable, Iterator

from kvc.capabilities import (
    COVERAGES,
    DRAFT_LAYER,
    DRAFT_TREES,
    INDEX_ENCODINGS,
    INDEX_KEY,
    LAYER_CAPABILITIES,
    MIXED_LAYERS,
    REFUSED_VARIANTS,
    STORAGE_CAPABILITIES,
    TWIN_READS,
    UNTWINNED,
    LayerCapability,
    StorageCapability,
    mixed_layer,
)
from kvc.diagnostic_codes import CODES, mixed_caches
from kvc.encodings import ENCODINGS

_PHASES = ("context", "generation")
_INTRO = """\
# What is supported

Made from the capability tables (`kvc/capabilities/`) by `python -m kvc.report.support > docs/support.md`.
`kvc check` and `kvc plan` take everything that can be **planned**; of that, `kvc compile` refuses what cannot be
**compiled** yet, naming the layer and the row that is missing (KVC103, KVC111, KVC112, KVC120, KVC121, KVC140).
A **twin** holds retained tokens in a second encoding; layers whose coverage has none keep all their rows in it.
"""

_MIXED_CODES = ("KVC110", "KVC128", "KVC129", *mixed_caches.CODES)
_MIXED = """\
## Mixed caches

With `cache.retain`, a history in the low encoding has a twin in the high one; `kvc explain CODE` says more.
"""


def support_text() -> str:
    """The whole page."""
    parts = (
        _INTRO,
        "## Layer kinds\n",
        _markdown(("layer kind", "coverage", "twin", "compiled coverage"), _kinds()),
        "\n## Encodings of a layer's rows\n",
        _markdown(("layer kind", "encoding", "activations", "twins", "drafts", *_PHASES, "context attention"), _rows()),
        "\nContext and generation: coverages that are compiled; - where it can be planned only. Context attention: "
        "what Q, K and V may be.\n",
        _MIXED,
        _markdown(("layers", "twin", "own pool", "why none"), _mixed_layers()),
        "\n",
        _markdown(("layer kind", "twins that attention reads", "why no others"), _twin_reads()),
        "\n",
        _markdown(("refused", "why"), _refused()),
        "\n",
        _markdown(("code", "rule or note"), ((name, CODES[name].title) for name in _MIXED_CODES)),
        "\n## Encodings\n",
        _markdown(("encoding", "scales", "rows of", "summary"), _encodings()),
    )
    return "\n".join(parts)


def _markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(header)
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "-"


def _kinds() -> Iterator[tuple[str, ...]]:
    for kind, coverages in COVERAGES.items():
        compiled = dict.fromkeys(row.coverage for row in LAYER_CAPABILITIES if row.kind == kind)
        twinned = (coverage for coverage in coverages if mixed_layer(kind, coverage).accepts_twin)
        yield kind, _listed(coverages), _listed(twinned), _listed(compiled)


def _rows() -> Iterator[tuple[str, ...]]:
    for row in STORAGE_CAPABILITIES:
        compiled = [able for able in LAYER_CAPABILITIES if (able.kind, able.encoding) == (row.kind, row.encoding)]
        able = (*(_listed(_phase(compiled, phase)) for phase in _PHASES), _listed(_context(compiled)))
        yield row.kind, row.encoding, _listed(row.dtypes), _twins(row, compiled), _drafts(row, compiled), *able
    for encoding in INDEX_ENCODINGS:
        yield "index key", encoding, "-", "-", "planned", *("-" for _ in _PHASES), "-"


def _phase(compiled: Iterable[LayerCapability], phase: str) -> list[str]:
    return [row.coverage for row in compiled if phase in row.phases]


def _context(compiled: Iterable[LayerCapability]) -> Iterable[str]:
    return dict.fromkeys(dtype for row in compiled for dtype in row.context)


def _twins(row: StorageCapability, compiled: Iterable[LayerCapability]) -> str:
    """Twins that can be planned; compiled ones marked."""
    able = {twin for found in compiled for twin in found.twins}
    return _listed(f"{twin} (compiled)" if twin in able else twin for twin in row.twins)


def _drafts(row: StorageCapability, compiled: Iterable[LayerCapability]) -> str:
    if any(found.draft for found in compiled):
        return "compiled"
    return "planned" if row.draft else "-"


def _mixed_layers() -> Iterator[tuple[str, ...]]:
    rows = [
        (row.kind if row.kind.startswith(row.coverage) else f"{row.kind}, {row.coverage}", row) for row in MIXED_LAYERS
    ]
    for what, row in (*rows, ("draft layers of any kind", DRAFT_LAYER), ("index keys", INDEX_KEY)):
        yield what, "yes" if row.accepts_twin else "no", row.pool, row.why or "-"


def _twin_reads() -> Iterator[tuple[str, ...]]:
    return ((row.kind, _listed(row.encodings), row.why) for row in TWIN_READS.values())


def _refused() -> Iterator[tuple[str, ...]]:
    yield from ((f"a twin of a history in `{encoding}`", why) for encoding, why in UNTWINNED.items())
    yield from ((f"`draft.tree: {tree}`", why) for tree, why in DRAFT_TREES.items() if why)
    for kind, variants in REFUSED_VARIANTS.items():
        yield from ((f"`{kind}`, `variant: {variant}`", why) for variant, why in variants.items())


def _encodings() -> Iterator[tuple[str, ...]]:
    for name, encoding in ENCODINGS.items():
        widths = " + ".join(str(width) for _, width in encoding.widths) or "any width"
        yield name, {"field": "one a field"}.get(encoding.scale, "none"), widths, encoding.summary


if __name__ == "__main__":
    print(support_text(), end="")
