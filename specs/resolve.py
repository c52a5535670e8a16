"""A checked spec as the plain data of `resolved.py`."""

import hashlib
import json
import math
from bisect import bisect_left, bisect_right
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

from kvc.diagnostics import Source
from kvc.encodings import ENCODINGS
from kvc.specs import models, resolved
from kvc.specs.nodes import key_source
from kvc.specs.placement import PlacedLayer, override_ranges, placed_layers, written_layers
from kvc.specs.yaml_reader import Document

_ROPE_OWN = {"kind", "theta", "dim", "layout"}


def resolve(spec: models.Spec, document: Document) -> resolved.ResolvedSpec:
    """Multiply out what every layer is and how it is stored; adjacent equal layers stay one run."""
    # Defaults are left out, so that an option that a later version adds does not change the digest.
    values = spec.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return resolved.ResolvedSpec(
        name=spec.name,
        file=document.path,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        dtype=spec.model.dtype,
        max_position=spec.model.max_position,
        runs=_runs(spec, document),
        memory=_memory(spec.memory),
        target=_target(spec.target),
        require=tuple(spec.compile.require),
        values=values,
    )


def _memory(memory: models.Memory | None) -> resolved.Memory | None:
    return resolved.Memory(memory.device, memory.free_fraction, memory.reserve) if memory else None


def default_buckets(max_sequences: int) -> tuple[int, ...]:
    """Powers of two below ``max_sequences``, then itself."""
    return (*(2**power for power in range((max_sequences - 1).bit_length())), max_sequences)


def _target(target: models.Target) -> resolved.Target:
    buckets = tuple(target.buckets) if target.buckets else default_buckets(target.max_sequences)
    return resolved.Target(
        target.device, target.arch, target.max_sequences, target.max_seq_len, target.max_tokens, buckets
    )


def _rope(layer: models.GqaLayer) -> resolved.Rope | None:
    rope = layer.rope
    if rope == "none":
        return None
    own = rope.model_dump(exclude_none=True, exclude=_ROPE_OWN)
    params = tuple(sorted((name, float(value)) for name, value in own.items()))
    return resolved.Rope(rope.kind, rope.layout, rope.dim or layer.head_dim, float(rope.theta), params)


def _shape(layer: models.GqaLayer) -> resolved.GqaShape:
    return resolved.GqaShape(
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        head_dim=layer.head_dim,
        v_head_dim=layer.v_head_dim or layer.head_dim,
        softmax_scale=float(layer.softmax_scale or 1 / math.sqrt(layer.head_dim)),
        rope=_rope(layer),
    )


class _Storage:
    """Encoding and scales of every layer: the cache's, or those of the one override that names it."""

    def __init__(self, cache: models.Cache, ranges: list[tuple[range, ...]]) -> None:
        self._cache = cache
        # (layers, position of the first one in the override's own count, override), by layer.
        self._overridden: list[tuple[range, int, models.Override]] = []
        for override, of_override in zip(cache.overrides, ranges, strict=True):
            before = 0
            for layers in of_override:
                self._overridden.append((layers, before, override))
                before += len(layers)
        self._overridden.sort(key=lambda row: row[0].start)

    def cuts(self, num_layers: int) -> list[int]:
        """Layer indices at which storage may change, ascending."""
        if any(map(_has_list, (self._cache.scales, *(override.scales for override in self._cache.overrides)))):
            return list(range(num_layers))
        return sorted({end for layers, _, _ in self._overridden for end in (layers.start, layers.stop)})

    def of(self, layer: int) -> tuple[str, resolved.ScaleSource]:
        """Encoding and scales of one layer."""
        cache, index = self._cache, bisect_right(self._overridden, layer, key=lambda row: row[0].start) - 1
        if index < 0 or layer not in self._overridden[index][0]:
            return cache.encoding, _scale_source(cache.encoding, cache.scales, layer)
        layers, before, override = self._overridden[index]
        encoding = override.encoding or cache.encoding
        if override.scales is None:
            return encoding, _scale_source(encoding, cache.scales, layer)
        return encoding, _scale_source(encoding, override.scales, before + layer - layers.start)


def _has_list(scales: models.Scales | None) -> bool:
    if not isinstance(scales, models.GivenScales):
        return False
    return any(isinstance(numbers, list) for numbers in (scales.values.k, scales.values.v))


def _scale_source(encoding: str, scales: models.Scales | None, position: int) -> resolved.ScaleSource:
    if ENCODINGS[encoding].scale == "none" or scales is None:
        return resolved.ScaleSource("none")
    if isinstance(scales, models.UnitScales):
        return resolved.ScaleSource("unit", (("k", 1.0), ("v", 1.0)))
    given = {"k": scales.values.k, "v": scales.values.v}
    numbers = {name: value[position] if isinstance(value, list) else value for name, value in given.items()}
    return resolved.ScaleSource("values", tuple((name, float(value)) for name, value in numbers.items()))


def _runs(spec: models.Spec, document: Document) -> tuple[resolved.LayerRun, ...]:
    placed, storage = placed_layers(spec), _Storage(spec.cache, override_ranges(spec))
    cuts = storage.cuts(placed[-1].first + placed[-1].count)
    written = {loc: (_shape(layer), key_source(document.root, loc)) for loc, layer in written_layers(spec.model.layers)}
    runs: list[resolved.LayerRun] = []
    for entry in placed:
        shape, source = written[entry.loc]
        for layers in _pieces(entry, cuts):
            _append(runs, _run(layers, shape, source, storage, spec.cache.tokens_per_page))
    return tuple(runs)


def _pieces(entry: PlacedLayer, cuts: list[int]) -> list[range]:
    """The layers of an entry, cut where storage may change."""
    stop = entry.first + entry.count
    inside = cuts[bisect_right(cuts, entry.first) : bisect_left(cuts, stop)]
    return [range(first, last) for first, last in pairwise((entry.first, *inside, stop))]


def _run(
    layers: range, shape: resolved.GqaShape, source: Source, storage: _Storage, tokens_per_page: int
) -> resolved.LayerRun:
    encoding, scales = storage.of(layers.start)
    return resolved.LayerRun(
        first=layers.start,
        count=len(layers),
        shape=shape,
        coverage=resolved.Coverage(),
        encoding=encoding,
        tokens_per_page=tokens_per_page,
        scales=scales,
        domain="target",
        source=source,
    )


# All that equal neighbours share: what a run is, without its place.
_same = attrgetter("shape", "coverage", "encoding", "tokens_per_page", "scales", "domain")


def _append(runs: list[resolved.LayerRun], run: resolved.LayerRun) -> None:
    """Add a run, or lengthen the last one where the new one differs in nothing but its place."""
    if runs and _same(runs[-1]) == _same(run):
        runs[-1] = replace(runs[-1], count=runs[-1].count + run.count)
    else:
        runs.append(run)
