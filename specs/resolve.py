"""A checked spec as the plain data of `resolved.py`."""

import hashlib
import json
from bisect import bisect_left, bisect_right
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

from kvc.diagnostics import Source
from kvc.specs import models, resolved
from kvc.specs.layer_models import Layer
from kvc.specs.nodes import key_source
from kvc.specs.notes import notes_of
from kvc.specs.placement import PlacedLayer, draft_layer, override_ranges, placed_layers, written_layers
from kvc.specs.resolve_shapes import coverage_of, shape_of, shards_of
from kvc.specs.resolve_storage import CONTEXT_FIELDS, Storage, Stored, has_list, source_of, storage_of
from kvc.specs.yaml_reader import Document


def resolve(spec: models.Spec, document: Document) -> resolved.ResolvedSpec:
    """Multiply out what every layer is and how it is stored; adjacent equal layers stay one run."""
    # Defaults are left out, so that an option that a later version adds does not change the digest.
    values = spec.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    target = _runs(spec, document)
    runs = (*target, *_draft_runs(spec, document, target))
    return resolved.ResolvedSpec(
        name=spec.name,
        file=document.path,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        dtype=spec.model.dtype,
        max_position=spec.model.max_position,
        runs=runs,
        memory=_memory(spec.memory),
        target=_target(spec.target),
        require=tuple(spec.compile.require),
        values=values,
        draft=_draft_rules(spec, document),
        tensor_parallel=spec.parallel.tensor,
        notes=notes_of(spec, document, runs),
    )


def _memory(memory: models.Memory | None) -> resolved.Memory | None:
    if memory is None:
        return None
    ratio = tuple(map(float, memory.pool_ratio or ()))
    return resolved.Memory(memory.device, memory.free_fraction, memory.reserve, ratio)


def default_buckets(max_sequences: int) -> tuple[int, ...]:
    """Powers of two below ``max_sequences``, then itself."""
    return (*(2**power for power in range((max_sequences - 1).bit_length())), max_sequences)


def _target(target: models.Target) -> resolved.Target:
    buckets = tuple(target.buckets) if target.buckets else default_buckets(target.max_sequences)
    return resolved.Target(
        target.device, target.arch, target.max_sequences, target.max_seq_len, target.max_tokens, buckets
    )


def _draft_rules(spec: models.Spec, document: Document) -> resolved.DraftRules | None:
    draft = spec.draft
    if draft is None:
        return None
    return resolved.DraftRules(draft.kind, draft.max_draft_tokens, draft.pool, key_source(document.root, ("draft",)))


def _drafted(spec: models.Spec) -> int:
    return spec.draft.max_draft_tokens if spec.draft else 0


class _Runs:
    """Makes runs of one spec; layers that are written once are made once."""

    def __init__(self, spec: models.Spec) -> None:
        self._ranks, self._drafted = spec.parallel.tensor, _drafted(spec)
        self._attention = spec.attention

    def run(
        self, layers: range, layer: Layer, stored: Stored, tokens_per_page: int, domain: resolved.Domain, source: Source
    ) -> resolved.LayerRun:
        """``layers`` that are all ``layer``, stored alike."""
        shape, coverage = shape_of(layer, self._ranks, self._drafted), coverage_of(layer)
        encoding, scales, retain = storage_of(stored, shape, coverage)
        return resolved.LayerRun(
            first=layers.start,
            count=len(layers),
            shape=shape,
            coverage=coverage,
            encoding=encoding,
            tokens_per_page=tokens_per_page,
            scales=scales,
            domain=domain,
            source=source,
            retain=retain,
            shards=shards_of(layer, self._ranks),
            context=self._context(shape.kind, layers.start),
            kernel=self._attention.kernel if domain == "target" and shape.kind != "recurrent" else "kvc",
        )

    def _context(self, kind: str, layer: int) -> resolved.ContextAttention:
        if kind == "recurrent" or self._attention.context == "act":
            return resolved.ContextAttention()
        return resolved.ContextAttention("fp8", source_of(CONTEXT_FIELDS, kind, self._attention.scales, layer))


def _runs(spec: models.Spec, document: Document) -> list[resolved.LayerRun]:
    placed, storage = placed_layers(spec), Storage(spec.cache, override_ranges(spec))
    total = placed[-1].first + placed[-1].count
    cuts = list(range(total)) if has_list(spec.attention.scales) else storage.cuts(total)
    sources = {loc: key_source(document.root, loc) for loc, _ in written_layers(spec.model.layers)}
    made, size = _Runs(spec), spec.cache.tokens_per_page
    runs: list[resolved.LayerRun] = []
    for entry in placed:
        for layers in _pieces(entry, cuts):
            stored = storage.of(layers.start)
            _append(runs, made.run(layers, entry.layer, stored, size, "target", sources[entry.loc]))
    return runs


def _draft_runs(spec: models.Spec, document: Document, target: list[resolved.LayerRun]) -> list[resolved.LayerRun]:
    """The draft layers, numbered after the target's; they have no twin."""
    draft, first = spec.draft, target[-1].first + target[-1].count
    if draft is None:
        return []
    layer, loc = draft_layer(spec)
    stored = Stored(draft.encoding, True, draft.scales or spec.cache.scales, 0, None, 0)
    cuts = list(range(first, first + draft.layers)) if has_list(spec.attention.scales) else []
    made, source = _Runs(spec), key_source(document.root, loc)
    size = draft.tokens_per_page or spec.cache.tokens_per_page
    runs: list[resolved.LayerRun] = []
    for layers in _pieces(PlacedLayer(first, draft.layers, layer, loc), cuts):
        _append(runs, made.run(layers, layer, stored, size, "draft", source))
    return runs


def _pieces(entry: PlacedLayer, cuts: list[int]) -> list[range]:
    """The layers of an entry, cut where storage may change."""
    stop = entry.first + entry.count
    inside = cuts[bisect_right(cuts, entry.first) : bisect_left(cuts, stop)]
    return [range(first, last) for first, last in pairwise((entry.first, *inside, stop))]


# All that equal neighbours share: what a run is, without its place.
_same = attrgetter(
    "shape", "coverage", "encoding", "tokens_per_page", "scales", "domain", "retain", "context", "kernel"
)


def _append(runs: list[resolved.LayerRun], run: resolved.LayerRun) -> None:
    """Add a run, or lengthen the last one where the new one differs in nothing but its place."""
    if runs and _same(runs[-1]) == _same(run):
        runs[-1] = replace(runs[-1], count=runs[-1].count + run.count)
    else:
        runs.append(run)
