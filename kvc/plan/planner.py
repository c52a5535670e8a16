"""From a checked spec to its memory plan."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import PurePath

from kvc.diagnostics import Source, fail
from kvc.plan.buffers import BufferRun, buffer_runs
from kvc.plan.memory import with_capacity
from kvc.plan.overheads import notes, overheads
from kvc.plan.pooling import Members, Placement, Pooling, assign_pools
from kvc.plan.stale import held_pages, page_limit
from kvc.plan.types import Buffer, LayerGroup, Lifecycle, Plan
from kvc.specs.resolved import ResolvedSpec


def make_plan(spec: ResolvedSpec, device_bytes: int | None = None) -> Plan:
    """Place every byte of the spec's cache; ``device_bytes`` stands in for the spec's `memory.device`.

    Raises KvcError: KVC201 (widths do not divide), KVC202 (tokens a page differ), KVC203 (no memory left for a cache),
    KVC205 (weights for other lifecycles), KVC206 (drafts cannot share slots).
    """
    drafted = spec.draft.max_tokens if spec.draft else 0
    pooling = pool_buffers(spec)
    groups = _layer_groups(pooling, spec.target.max_seq_len, drafted)
    plan = Plan(
        name=spec.name,
        digest=spec.digest,
        bytes_per_token=sum((group.bytes_per_token for group in groups), Fraction()),
        bytes_per_sequence=sum(group.bytes_per_sequence for group in groups),
        layer_groups=groups,
        lifecycles=tuple(_lifecycle(members, pooling, groups) for members in pooling.members),
        pools=pooling.pools,
        pool_groups=pooling.pool_groups,
        buffers=_buffers(pooling.placements),
        capacity=None,
        notes=notes(spec),
        overheads=overheads(spec, pooling),
        draft_tokens=drafted,
        tensor_parallel=spec.tensor_parallel,
    )
    return with_capacity(plan, spec, device_bytes)


def pool_buffers(spec: ResolvedSpec) -> Pooling:
    """The spec's buffers in pools; KvcError KVC206 where drafts must share the target's slots and cannot."""
    pooling = assign_pools(buffer_runs(spec), own_draft_pools=spec.draft is not None and spec.draft.pool == "own")
    if spec.draft and spec.draft.pool == "target":
        _require_shared_slots(pooling, spec.draft.source)
    return pooling


def _require_shared_slots(pooling: Pooling, source: Source) -> None:
    for group in pooling.pool_groups:
        if {pooling.members[lifecycle].domain for lifecycle in group.lifecycles} == {"draft"}:
            message = (
                f"the draft layers' slots of {', '.join(map(str, group.slot_sizes))} bytes equal none of the target's"
            )
            raise fail(
                "KVC206", message, source=source, help="write `pool: auto`: slots are shared where they are equal"
            )


def _cost(run: BufferRun, layers: int, max_seq_len: int, drafted: int) -> tuple[Fraction, int]:
    """(slope bytes a token, fixed bytes a sequence) of ``layers`` such buffers; one of them is 0."""
    page_bytes = run.layout.page_bytes * layers
    if page_limit(run.coverage, run.tokens_per_page) is None:
        return Fraction(page_bytes, run.tokens_per_page), 0
    return Fraction(), page_bytes * held_pages(run.coverage, max_seq_len, run.tokens_per_page, drafted)


def _layer_groups(pooling: Pooling, max_seq_len: int, drafted: int) -> tuple[LayerGroup, ...]:
    """Placements that differ in nothing but their layers, together, in order of their first layer; twins last."""
    equal: dict[tuple[object, ...], list[Placement]] = {}
    for placed in pooling.placements:
        run = placed.run
        key = (placed.pool, run.kind, run.role, run.encoding, run.fields, run.states)
        equal.setdefault(key, []).append(placed)
    ordered = sorted(equal.values(), key=lambda found: (found[0].run.role == "twin", found[0].run.layers[0]))
    count: Counter[str] = Counter()
    groups = []
    for placements in ordered:
        name = placements[0].run.name
        groups.append(_layer_group(f"{name}{count[name]}", placements, max_seq_len, drafted))
        count[name] += 1
    return tuple(groups)


def _layer_group(name: str, placements: list[Placement], max_seq_len: int, drafted: int) -> LayerGroup:
    first, run = placements[0], placements[0].run
    layers = tuple(chain.from_iterable(placed.run.layers for placed in placements))
    slope, fixed = _cost(run, len(layers), max_seq_len, drafted)
    return LayerGroup(
        name=name,
        role=run.role,
        layers=layers,
        encoding=run.encoding,
        coverage=str(run.coverage),
        domain=run.domain,
        lifecycle=first.lifecycle,
        pool=first.pool,
        pool_group=first.pool_group,
        tokens_per_page=run.tokens_per_page,
        rows_per_page=run.layout.tokens_per_page,
        row_bytes=run.layout.row_bytes,
        scale_bytes=run.layout.scale_bytes,
        page_bytes=run.layout.page_bytes,
        bytes_per_token=slope,
        bytes_per_sequence=fixed,
        shards=run.shards,
        states=run.states,
        source=_portable(run.source),
    )


def _portable(source: Source) -> Source:
    """The source without the folders of this machine: plans travel in artifacts."""
    return replace(source, path=PurePath(source.path).name)


def _lifecycle(members: Members, pooling: Pooling, groups: Iterable[LayerGroup]) -> Lifecycle:
    own = [group for group in groups if group.lifecycle == members.id]
    pools = [pool for pool in pooling.pools if pool.lifecycle == members.id]
    return Lifecycle(
        id=members.id,
        coverage=members.coverage,
        domain=members.domain,
        tokens_per_page=members.tokens_per_page,
        pool_group=pools[0].pool_group,
        pools=tuple(pool.id for pool in pools),
        bytes_per_token=sum((group.bytes_per_token for group in own), Fraction()),
        bytes_per_sequence=sum(group.bytes_per_sequence for group in own),
    )


def _buffers(placements: Iterable[Placement]) -> tuple[Buffer, ...]:
    """One row a layer and role, by layer: the only part of a plan that grows with depth."""
    buffers = [
        Buffer(
            layer, placed.run.role, placed.run.domain, placed.pool, placed.index + offset, placed.run.layout.page_bytes
        )
        for placed in placements
        for offset, layer in enumerate(placed.run.layers)
    ]
    return tuple(sorted(buffers, key=lambda buffer: buffer.layer))
