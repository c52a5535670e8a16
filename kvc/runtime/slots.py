"""Free slots of a pool group: whole slots, lowest index first, so that equal histories give equal layouts."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush


class SlotAllocator:
    """The slots ``0 .. num_slots - 1`` of one pool group.

    ``take`` always gives the lowest free slots: two runs of one schedule fill the same pages.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._heap = list(range(num_slots))
        self._free = bytearray(b"\x01") * num_slots
        heapify(self._heap)

    @property
    def free(self) -> int:
        """How many slots can be taken now."""
        return len(self._heap)

    def take(self, count: int) -> list[int]:
        """Take the ``count`` lowest free slots, ascending; the caller has checked that there are enough."""
        if count > self.free:
            raise ValueError(f"{count} slots asked for, {self.free} free")
        taken = [heappop(self._heap) for _ in range(count)]
        for slot in taken:
            self._free[slot] = 0
        return taken

    def give(self, slots: Iterable[int]) -> None:
        """Return slots; one that is free already is a broken invariant, not a request to refuse."""
        for slot in slots:
            if self._free[slot]:
                raise ValueError(f"slot {slot} is free already")
            self._free[slot] = 1
            heappush(self._heap, slot)
