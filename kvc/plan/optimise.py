"""Page sizes and padding of a hybrid, chosen by stated costs.

Small pages waste little at a sequence's end and make the smallest request small, but need more table entries; equal
slots let lifecycles share one pool group, so that no memory is stranded in the wrong one, but padding is waste. Every
candidate is counted, the cheapest is chosen, and the runner-up says by what.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from kvc.capabilities import PAGE_SIZES
from kvc.plan.buffers import BufferRun, at_page_size, buffer_runs
from kvc.plan.pooling import Members, Pooling, assign_pools
from kvc.plan.stale import held_pages, page_limit
from kvc.plan.types import Json
from kvc.plan.units import format_size
from kvc.specs.resolved import ResolvedSpec

# Tokens a page that attention kernels of a layer kind can read on a GPU, at least.
_SMALLEST = {"gqa": 16, "mla": 64, "mla_sparse": 64, "recurrent": 1}
_LARGEST = 256
_ENTRY = 8  # bytes a page needs in tables: int32 in the host's slot table and in the device's page table


@dataclass(frozen=True)
class Costs:
    """What a sequence of ``tokens`` is charged, in bytes.

    Wasted bytes and table bytes count once, the smallest request ``smallest`` times; every pool group beyond the first
    strands ``stranded`` of a sequence's bytes, since a mix other than the planned one fills one group before others.
    """

    tokens: int
    smallest: float = 0.25
    stranded: float = 0.02

    def __str__(self) -> str:
        return (
            f"cost of one sequence of {self.tokens:,} tokens = wasted bytes + table bytes + {self.smallest} x smallest "
            f"request + {self.stranded} x its bytes for every pool group after the first"
        )


@dataclass(frozen=True)
class Choice:
    """A page size for every lifecycle that has pages of tokens (in order of their ids), slots padded or not.

    ``wasted_bytes``: of a sequence's slots, what holds no row of it: rounding, padding and the unfilled rest of pages,
    of the last one half on average.
    """

    pages: tuple[int, ...]
    padded: bool
    groups: int
    wasted_bytes: int
    smallest_bytes: int
    table_bytes: int
    sequence_bytes: int
    cost: float

    def reason(self, ranked: Sequence["Choice"]) -> str:
        """Why this one, in a sentence or two."""
        chosen = f"chosen: {_sizes(self.pages)} tokens a page{', slots padded to one size' if self.padded else ''}"
        other = next((choice for choice in ranked if choice.pages != self.pages or choice.padded != self.padded), None)
        if other is None:
            return f"{chosen}: nothing else is possible"
        named = _sizes(other.pages) + (" padded" if other.padded else "")
        gains = [
            f"{name} {format_size(mine)} instead of {format_size(theirs)}"
            for name, mine, theirs in (
                ("wastes", self.wasted_bytes, other.wasted_bytes),
                ("smallest request", self.smallest_bytes, other.smallest_bytes),
                ("tables", self.table_bytes, other.table_bytes),
            )
            if mine != theirs
        ]
        groups = f"{self.groups} pool groups instead of {other.groups}" if self.groups != other.groups else ""
        return f"{chosen}; against {named}: {', '.join(filter(None, [*gains, groups])) or 'equal'}"

    def to_json(self) -> Json:
        """Plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def _sizes(pages: tuple[int, ...]) -> str:
    return "/".join(map(str, pages)) or "any"


def optimise(spec: ResolvedSpec, costs: Costs | None = None) -> tuple[Choice, ...]:
    """All candidates, cheapest first; among equals, the larger pages."""
    costs = costs or Costs(spec.target.max_seq_len)
    drafted = spec.draft.max_tokens if spec.draft else 0
    base = assign_pools(buffer_runs(spec))
    found = [
        _count(pooling, pages, padded, costs, drafted)
        for pages, pooling in _candidates(base)
        for padded in ((False, True) if len(pooling.pool_groups) > 1 else (False,))
    ]
    return tuple(sorted(found, key=lambda choice: (choice.cost, [-size for size in choice.pages])))


def _runs(members: Members) -> list[BufferRun]:
    return [run for runs in members.by_size.values() for run in runs]


def _possible(members: Members) -> tuple[int, ...]:
    """Page sizes that every buffer of a lifecycle can have."""
    runs = _runs(members)
    smallest = max(_SMALLEST[run.kind] for run in runs)
    ratio = max(run.coverage.ratio for run in runs)
    return tuple(size for size in PAGE_SIZES if max(smallest, ratio) <= size <= max(_LARGEST, ratio))


def _candidates(base: Pooling) -> Iterator[tuple[tuple[int, ...], Pooling]]:
    """Every combination of page sizes over kinds of lifecycles: growing ones share one size, the others another."""
    kinds = [None if _is_state(members) else _grows(members) for members in base.members]
    sizes = {
        kind: sorted(
            set.intersection(*(set(_possible(m)) for m, of in zip(base.members, kinds, strict=True) if of is kind))
        )
        for kind in dict.fromkeys(kinds)
        if kind is not None
    }
    for chosen in product(*sizes.values()):
        by_kind = dict(zip(sizes, chosen, strict=True))
        runs = [
            at_page_size(run, by_kind[kind]) if kind is not None else run
            for members, kind in zip(base.members, kinds, strict=True)
            for run in _runs(members)
        ]
        yield chosen, assign_pools(runs)


def _is_state(members: Members) -> bool:
    return members.coverage.kind in ("recurrent", "rolling")


def _grows(members: Members) -> bool:
    return page_limit(members.coverage, members.tokens_per_page) is None


def _slot_bytes(members: Members) -> int:
    return sum(slot for slot, _ in members.pools)


def _row_bytes(members: Members, tokens: int, drafted: int) -> int:
    """Bytes of the rows that a sequence of ``tokens`` needs in a lifecycle, with no page and no rounding."""
    limit = page_limit(members.coverage, 1, drafted)
    states = limit if _is_state(members) else 0
    kept = min(tokens, limit - 1) if limit is not None else tokens
    total = 0
    for run in _runs(members):
        rows = states or kept // run.coverage.ratio
        total += run.layout.row_bytes * len(run.layers) * rows
    return total


def _count(pooling: Pooling, pages: tuple[int, ...], padded: bool, costs: Costs, drafted: int) -> Choice:
    slots = {members.id: _slot_bytes(members) for members in pooling.members}
    if padded:
        slots = dict.fromkeys(slots, max(slots.values()))

    def held(members: Members, tokens: int) -> int:
        return held_pages(members.coverage, tokens, members.tokens_per_page, drafted)

    whole = sum(held(members, costs.tokens) * slots[members.id] for members in pooling.members)
    whole += sum(slots[members.id] // 2 for members in pooling.members if _grows(members))
    needed = sum(_row_bytes(members, costs.tokens, drafted) for members in pooling.members)
    smallest = sum(held(members, 1) * slots[members.id] for members in pooling.members)
    tables = _ENTRY * sum(
        -(-costs.tokens // members.tokens_per_page) * len(members.by_size)
        for members in pooling.members
        if not _is_state(members)
    )
    groups = 1 if padded else len(pooling.pool_groups)
    cost = whole - needed + tables + costs.smallest * smallest + costs.stranded * whole * (groups - 1)
    return Choice(pages, padded, groups, whole - needed, smallest, tables, whole, cost)
