"""From buffers to lifecycles, pools and pool groups: who shares slots with whom. Costs one step a run, not a layer."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvc.diagnostics import fail
from kvc.plan.buffers import BufferRun
from kvc.plan.types import Pool, PoolGroup
from kvc.specs.resolved import Coverage, Domain


@dataclass(frozen=True)
class Placement:
    """A run of buffers in its pool: its first layer's is page ``index`` of a slot, the next layer's the next page."""

    run: BufferRun
    lifecycle: int
    pool: int
    pool_group: int
    index: int


@dataclass(frozen=True)
class Members:
    """The buffers of a lifecycle, by page bytes: the buffers of one size make a pool."""

    id: int
    coverage: Coverage
    domain: Domain
    tokens_per_page: int
    by_size: dict[int, list[BufferRun]] = field(default_factory=dict)

    @property
    def pools(self) -> list[tuple[int, int]]:
        """(slot bytes, page bytes) of each pool, by slot bytes descending; equal slots keep first-seen order."""
        slots = [(size * sum(len(run.layers) for run in runs), size) for size, runs in self.by_size.items()]
        return sorted(slots, key=lambda slot: -slot[0])

    def add(self, run: BufferRun) -> None:
        """Take in a run; KvcError (KVC202) where its pages hold another number of tokens."""
        if run.tokens_per_page != self.tokens_per_page:
            raise fail(
                "KVC202",
                f"layers {run.layers[0]} to {run.layers[-1]} have {run.tokens_per_page} tokens a page, "
                f"other {self.domain} layers with coverage {self.coverage} have {self.tokens_per_page}",
                source=run.source,
                help="their pages come and go together: give them one tokens_per_page",
            )
        self.by_size.setdefault(run.layout.page_bytes, []).append(run)


@dataclass(frozen=True)
class Pooling:
    """The answer: ``placements`` in pool order, every id an index into its list."""

    members: tuple[Members, ...]
    pools: tuple[Pool, ...]
    pool_groups: tuple[PoolGroup, ...]
    placements: tuple[Placement, ...]


def _lifecycles(runs: Iterable[BufferRun]) -> tuple[Members, ...]:
    found: dict[tuple[Coverage, Domain], Members] = {}
    for run in runs:
        fresh = Members(len(found), run.coverage, run.domain, run.tokens_per_page)
        found.setdefault((run.coverage, run.domain), fresh).add(run)
    return tuple(found.values())


# What the lifecycles of a pool group share: their slot-size list, and the domain where drafts have pools of their own.
_GroupKey = tuple[tuple[int, ...], str]


def _group_by_slots(lifecycles: tuple[Members, ...], own_draft_pools: bool) -> dict[_GroupKey, list[int]]:
    """Ids of the lifecycles that share a pool group, first seen first."""
    groups: dict[_GroupKey, list[int]] = {}
    for members in lifecycles:
        slots = tuple(slot for slot, _ in members.pools)
        groups.setdefault((slots, members.domain if own_draft_pools else ""), []).append(members.id)
    return groups


def _place(members: Members, pool: Pool) -> list[Placement]:
    placements, index = [], 0
    for run in members.by_size[pool.page_bytes]:
        placements.append(Placement(run, members.id, pool.id, pool.pool_group, index))
        index += len(run.layers)
    return placements


def assign_pools(runs: Iterable[BufferRun], own_draft_pools: bool = False) -> Pooling:
    """Group buffers into lifecycles (key: coverage and domain), pools and pool groups.

    ``own_draft_pools``: draft layers share no pool group with target layers. ``num_slots`` of the groups is left open.
    KvcError (KVC202) where layers of a lifecycle disagree on tokens a page.
    """
    lifecycles = _lifecycles(runs)
    by_slots = _group_by_slots(lifecycles, own_draft_pools)
    group_of = {member: group for group, ids in enumerate(by_slots.values()) for member in ids}
    shapes = [(members.id, slot, page) for members in lifecycles for slot, page in members.pools]
    pools = tuple(
        Pool(number, lifecycle, group_of[lifecycle], page, slot // page, slot)
        for number, (lifecycle, slot, page) in enumerate(shapes)
    )
    groups = (
        PoolGroup(number, sum(sizes), sizes, None, tuple(ids))
        for number, ((sizes, _), ids) in enumerate(by_slots.items())
    )
    placements = tuple(placed for pool in pools for placed in _place(lifecycles[pool.lifecycle], pool))
    return Pooling(lifecycles, pools, tuple(groups), placements)
