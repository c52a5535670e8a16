"""Whether the parts of a plan that was read from a file agree with each other."""

from collections import Counter
from collections.abc import Iterator

from kvc.plan.stale import page_limit
from kvc.plan.types import Lifecycle, Plan, PoolGroup


def contradictions(plan: Plan) -> Iterator[str]:
    """What a plan says of one part that another denies; no more than types are taken for granted."""
    for name in ("pools", "pool_groups", "lifecycles"):
        parts = getattr(plan, name)
        if not parts or [part.id for part in parts] != list(range(len(parts))):
            yield f"plan.{name}: ids are not 0, 1, ..."
            return
    dangling = list(_dangling(plan))
    yield from dangling or _disagreeing(plan)


def _dangling(plan: Plan) -> Iterator[str]:
    """References to pools, pool groups and lifecycles that do not exist."""
    sizes = {"pool": len(plan.pools), "pool_group": len(plan.pool_groups), "lifecycle": len(plan.lifecycles)}
    for parts in ("pools", "lifecycles", "layer_groups", "buffers", "pool_groups"):
        for index, part in enumerate(getattr(plan, parts)):
            for field, size in sizes.items():
                named = (getattr(part, field),) if hasattr(part, field) else getattr(part, f"{field}s", ())
                if not all(0 <= number < size for number in named):
                    yield f"plan.{parts}[{index}]: there is no such {field}"


def _disagreeing(plan: Plan) -> Iterator[str]:
    for pool in plan.pools:
        if pool.page_bytes < 1 or pool.pages_per_slot < 1 or pool.slot_bytes != pool.page_bytes * pool.pages_per_slot:
            yield f"plan.pools[{pool.id}]: slot_bytes is not pages_per_slot * page_bytes"
    for group in plan.pool_groups:
        if not _agrees(plan, group):
            yield f"plan.pool_groups[{group.id}]: the sizes of its slots are not those of its pools"
    for lifecycle in plan.lifecycles:
        if not _has_rule(lifecycle):
            yield f"plan.lifecycles[{lifecycle.id}]: a coverage or page size that this kvc does not know"
    if plan.draft_tokens < 0:
        yield "plan.draft_tokens is below 0"
    yield from _misplaced(plan)


def _misplaced(plan: Plan) -> Iterator[str]:
    """Buffers that are nobody's, that lie in no page of their pool, or in one that another has."""
    layers = sorted((group.pool, layer) for group in plan.layer_groups for layer in group.layers)
    if layers != sorted((buffer.pool, buffer.layer) for buffer in plan.buffers):
        yield "plan.layer_groups: their layers are not those of the buffers"
    for buffer in plan.buffers:
        pool = plan.pools[buffer.pool]
        if buffer.page_bytes != pool.page_bytes or not 0 <= buffer.index < pool.pages_per_slot:
            yield f"plan.buffers: layer {buffer.layer} has no page in pool {buffer.pool}"
    pages = Counter((buffer.pool, buffer.index) for buffer in plan.buffers)
    if any(count > 1 for count in pages.values()):
        yield "plan.buffers: two buffers have the same page of a slot"


def _agrees(plan: Plan, group: PoolGroup) -> bool:
    lists = [tuple(plan.pools[pool].slot_bytes for pool in plan.lifecycles[i].pools) for i in group.lifecycles]
    members = tuple(lifecycle.id for lifecycle in plan.lifecycles if lifecycle.pool_group == group.id)
    whole = group.slot_bytes == sum(group.slot_sizes) and group.lifecycles == members
    return whole and bool(lists) and all(sizes == group.slot_sizes for sizes in lists) and (group.num_slots or 0) >= 0


def _has_rule(lifecycle: Lifecycle) -> bool:
    coverage = lifecycle.coverage
    if lifecycle.tokens_per_page < 1 or not lifecycle.pools or min(coverage.keep_first, coverage.ratio - 1) < 0:
        return False
    if coverage.window is not None and coverage.window < 1:
        return False
    try:
        page_limit(lifecycle.coverage, lifecycle.tokens_per_page)
    except (KeyError, ValueError):
        return False
    return True
