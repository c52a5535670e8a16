"""The memory of a cache: one uint8 tensor for each pool group and slot size, and each layer's view of it."""

from collections.abc import Sequence
from math import prod

import torch

from kvc.diagnostics import fail
from kvc.plan.types import Plan

ALIGNMENT = 16  # bytes; every page starts on a multiple of it


class PoolMemory:
    """Slots of every pool group.

    Lifecycles of one group share slots, and so memory: the pool at position `p` of a lifecycle lies in the group's
    `p`-th tensor, uint8 ``[num_slots, slot_bytes]``. ``fill`` is the byte that new memory holds; a cache must work with
    any.
    """

    def __init__(self, plan: Plan, num_slots: Sequence[int], device: str | torch.device, fill: int = 0) -> None:
        self.tensors = {
            (group.id, position): _aligned_bytes((num_slots[group.id], size), device, fill)
            for group in plan.pool_groups
            for position, size in enumerate(group.slot_sizes)
        }
        self._plan = plan

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def of_pool(self, pool: int) -> torch.Tensor:
        """The tensor that pool ``pool`` lies in, uint8 ``[num_slots, slot_bytes]``."""
        cycle = self._plan.lifecycles[self._plan.pools[pool].lifecycle]
        return self.tensors[cycle.pool_group, cycle.pools.index(pool)]

    def view(self, pool: int, index: int) -> torch.Tensor:
        """Buffer ``index`` of a pool as a layer sees it: uint8 ``[pages, page_bytes]``.

        Row `slot * pages_per_slot` is the buffer's page of that slot: the base pointer carries the offset, so all
        layers of a pool share one page table.
        """
        page_bytes = self._plan.pools[pool].page_bytes
        return self.of_pool(pool).view(-1, page_bytes)[index:]


def _aligned_bytes(shape: tuple[int, int], device: str | torch.device, fill: int) -> torch.Tensor:
    """A uint8 tensor whose first byte is aligned, whatever the allocator gives."""
    try:
        memory = torch.zeros(prod(shape) + ALIGNMENT, dtype=torch.uint8, device=device)
    except (RuntimeError, MemoryError) as error:
        message = f"{prod(shape):,} bytes of {device} memory for {shape[0]} slots are not to be had"
        raise fail("KVC508", message, help="allocate fewer slots") from error
    if fill:
        memory.fill_(fill)
    start = -memory.data_ptr() % ALIGNMENT
    return memory[start : start + prod(shape)].view(shape)
