"""What a memory size makes of a plan: slots of each pool group, tokens, sequences, and what was left out of the sum."""

from dataclasses import replace
from fractions import Fraction
from math import gcd

from kvc.diagnostics import fail
from kvc.plan.capacity import (
    Slots,
    bytes_for_tokens,
    mix_of,
    slots_for_lengths,
    tokens_for_bytes,
    tokens_for_slots,
)
from kvc.plan.stale import ceil_div
from kvc.plan.types import Capacity, Plan
from kvc.plan.units import format_size
from kvc.specs.resolved import Memory, ResolvedSpec

UNKNOWN = "capacity unknown: give `memory: {device: 139GiB}` in the spec, or `kvc plan --device 139GiB`"
WHOLE = "the cache takes the whole device: the spec has no `memory` section with a free_fraction or a reserve"
NO_RESERVE = "not subtracted: weights, activations and workspace (give `memory.reserve`)"


def with_capacity(plan: Plan, spec: ResolvedSpec, device_bytes: int | None) -> Plan:
    """The plan with slots, capacity and notes for the spec's memory, or for ``device_bytes`` in its place.

    Raises KvcError (KVC203) where the device is not larger than the spec's reserve, (KVC205) where `pool_ratio` has
    not one weight a lifecycle.
    """
    memory = _memory(spec, device_bytes)
    if memory is None:
        return replace(plan, notes=(*plan.notes, UNKNOWN, *_rounding(plan)))
    budget = cache_bytes(memory)
    length = whole_pages(plan, spec.target.max_seq_len)
    slots, tokens = _shared(plan, budget, length)
    if memory.pool_ratio:
        slots, tokens = _divided(plan, budget, memory.pool_ratio, length)
    capacity = Capacity(
        memory_bytes=memory.device_bytes,
        reserve_bytes=memory.reserve_bytes,
        free_fraction=memory.free_fraction,
        cache_bytes=budget,
        used_bytes=sum(slots[group.id] * group.slot_bytes for group in plan.pool_groups),
        tokens=tokens,
        max_seq_len=spec.target.max_seq_len,
        sequences_at_max_len=_sequences(plan, budget, slots, memory, spec.target.max_seq_len),
    )
    groups = tuple(replace(group, num_slots=slots[group.id]) for group in plan.pool_groups)
    found = (*plan.notes, *_notes(plan, spec, capacity), *_rounding(plan))
    return replace(plan, pool_groups=groups, capacity=capacity, notes=found)


def _shared(plan: Plan, budget: int, length: int) -> tuple[Slots, int]:
    """Slots of each pool group, and tokens, where the mix that is held divides the memory."""
    tokens = tokens_for_bytes(plan, budget, length) or 0
    return slots_for_lengths(plan, mix_of(tokens, length)), tokens


def _divided(plan: Plan, budget: int, ratio: tuple[float, ...], length: int) -> tuple[Slots, int]:
    """The same where weights divide it; tokens are limited by the pool group that runs out first."""
    if len(ratio) != len(plan.lifecycles):
        names = ", ".join(f"{cycle.domain} {cycle.coverage}" for cycle in plan.lifecycles)
        message = f"`pool_ratio` has {len(ratio)} weights for {len(plan.lifecycles)} lifecycles"
        raise fail("KVC205", message, path="memory.pool_ratio", help=f"give one each to: {names}")
    weights = tuple(Fraction(str(weight)) for weight in ratio)
    parts = {group.id: sum(weights[cycle] for cycle in group.lifecycles) for group in plan.pool_groups}
    slots = {group.id: int(budget * parts[group.id] / sum(weights)) // group.slot_bytes for group in plan.pool_groups}
    return slots, tokens_for_slots(plan, slots, length)


def _sequences(plan: Plan, budget: int, slots: Slots, memory: Memory, length: int) -> int:
    """Whole sequences of ``length`` that fit."""
    if not memory.pool_ratio:
        return budget // bytes_for_tokens(plan, length)
    return min(slots[group] // needed for group, needed in slots_for_lengths(plan, [length]).items() if needed)


def _memory(spec: ResolvedSpec, device_bytes: int | None) -> Memory | None:
    """The spec's memory on the device asked for; without a `memory` section the cache may take all of it."""
    memory = spec.memory
    if device_bytes is not None:
        memory = replace(memory or Memory(0, 1.0, 0), device_bytes=device_bytes)
    if memory is not None and memory.device_bytes <= memory.reserve_bytes:
        sizes = f"{format_size(memory.device_bytes)} of memory, {format_size(memory.reserve_bytes)} of it reserved"
        raise fail("KVC203", f"no memory left for a cache: {sizes}", help="give a larger device or a smaller reserve")
    return memory


def cache_bytes(memory: Memory) -> int:
    """What the cache may take: the fraction, read as the decimal that was written, of what the reserve leaves."""
    return int((memory.device_bytes - memory.reserve_bytes) * Fraction(str(memory.free_fraction)))


def whole_pages(plan: Plan, tokens: int) -> int:
    """``tokens`` rounded up as far as no lifecycle needs another page: a full cache is counted in whole pages."""
    step = gcd(*(lifecycle.tokens_per_page for lifecycle in plan.lifecycles))
    return ceil_div(tokens, step) * step


def _notes(plan: Plan, spec: ResolvedSpec, capacity: Capacity) -> tuple[str, ...]:
    """What a reader must know about the capacity and cannot see in its numbers."""
    one = bytes_for_tokens(plan, capacity.max_seq_len)
    longest = f"one sequence of {capacity.max_seq_len:,} tokens takes {format_size(one)}"
    rules = (
        (spec.memory is None, WHOLE),
        (capacity.reserve_bytes == 0, NO_RESERVE),
        (capacity.sequences_at_max_len == 0, f"{longest}, more than the cache's {format_size(capacity.cache_bytes)}"),
    )
    return tuple(note for holds, note in rules if holds)


def _rounding(plan: Plan) -> tuple[str, ...]:
    """What aligning the planes of a page costs, where it costs anything."""
    text = "rounding: {0.rounding_bytes:,} of the {0.page_bytes:,} bytes of a page of {0.name} hold nothing"
    return tuple(text.format(group) for group in plan.layer_groups if group.rounding_bytes)
