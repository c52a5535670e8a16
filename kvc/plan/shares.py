"""Which part of a number of bytes is whose: the slots that sequences hold, divided among layer groups and their parts.

No byte formula of its own: pages held come from `Plan.slots_of`, bytes of a page from the layer group. The shares of a
mix add up to `kvc.plan.capacity.bytes_for_lengths` of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kvc.plan.capacity import bytes_for_tokens, mix_of
from kvc.plan.memory import whole_pages
from kvc.plan.types import LayerGroup, Plan


@dataclass(frozen=True)
class Share:
    """Bytes of one ``part`` of a layer group's pages: its `rows`, their block `scales`, or the `rounding` of planes."""

    group: LayerGroup
    part: str
    nbytes: int


def group_bytes(plan: Plan, mix: Mapping[int, int]) -> dict[str, int]:
    """Bytes that each layer group holds for a mix, sequence length -> number of sequences; keys in plan order."""
    return {group.name: _pages(plan, group, mix) * group.page_bytes for group in plan.layer_groups}


def shares(plan: Plan, mix: Mapping[int, int]) -> tuple[Share, ...]:
    """The same, with every page divided into its parts; parts of no bytes are left out."""
    found = (
        Share(group, part, _pages(plan, group, mix) * nbytes)
        for group in plan.layer_groups
        for part, nbytes in _parts_of_a_page(group)
    )
    return tuple(share for share in found if share.nbytes)


def _pages(plan: Plan, group: LayerGroup, mix: Mapping[int, int]) -> int:
    """Pages that all layers of a group hold: one a layer in every slot of its lifecycle."""
    lifecycle = plan.lifecycles[group.lifecycle]
    slots = sum(sequences * plan.slots_of(lifecycle, length) for length, sequences in mix.items())
    return slots * len(group.layers)


def _parts_of_a_page(group: LayerGroup) -> tuple[tuple[str, int], ...]:
    scales = group.scale_bytes * group.rows_per_page
    rounding = group.rounding_bytes
    return ("rows", group.page_bytes - scales - rounding), ("scales", scales), ("rounding", rounding)


@dataclass(frozen=True)
class Division:
    """How a device's memory divides; the parts add up to ``memory_bytes``.

    ``growing``: bytes of each layer group whose history grows, when the cache is full; ``fixed_bytes``: of all the
    others; ``idle_bytes``: slots that no sequence can use because another pool group has run out (`pool_ratio`);
    ``free_bytes``: what is left of the device beside the cache's slots and the reserve.
    """

    memory_bytes: int
    growing: dict[str, int]
    fixed_bytes: int
    idle_bytes: int
    reserve_bytes: int
    free_bytes: int


def divide_memory(plan: Plan) -> Division:
    """The division of a plan's device when its cache is full; ValueError where no memory size is known."""
    capacity = plan.capacity
    if capacity is None:
        raise ValueError("the plan has no capacity")
    held = group_bytes(plan, mix_of(capacity.tokens, whole_pages(plan, capacity.max_seq_len)))
    growing = {group.name: held[group.name] for group in plan.layer_groups if group.bytes_per_token}
    total = sum(held.values())
    return Division(
        memory_bytes=capacity.memory_bytes,
        growing=growing,
        fixed_bytes=total - sum(growing.values()),
        idle_bytes=capacity.used_bytes - total,
        reserve_bytes=capacity.reserve_bytes,
        free_bytes=capacity.memory_bytes - capacity.reserve_bytes - capacity.used_bytes,
    )


def sequence_curve(plan: Plan, longest: int, steps_per_doubling: int = 8) -> tuple[tuple[int, int], ...]:
    """(tokens, bytes in whole pages) of one sequence, at lengths from 1 to ``longest`` in equal ratios."""
    doublings = (longest - 1).bit_length() * steps_per_doubling
    lengths = {min(longest, round(2 ** (step / steps_per_doubling))) for step in range(doublings + 1)} | {longest}
    return tuple((tokens, bytes_for_tokens(plan, tokens)) for tokens in sorted(lengths))
