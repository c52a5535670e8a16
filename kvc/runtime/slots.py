"""Free slots of a pool group: whole slots, lowest index first, so that equal histories give equal layouts."""

from collections.abc import Iterable
from heapq import heappop, heappush


class SlotAllocator:
    """The slots ``0 .. num_slots - 1`` of one pool group.

    ``take`` always gives the lowest free slots: two runs of one schedule fill the same pages. Slots never taken yet are
    a number, not a list, so a pool of any size costs nothing before it is used.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._untouched = 0  # slots from here on were never taken
        self._returned: list[int] = []  # a heap of free slots below that
        self._free = set[int]()  # the same slots

    @property
    def free(self) -> int:
        """How many slots can be taken now."""
        return self.num_slots - self._untouched + len(self._returned)

    def take(self, count: int) -> list[int]:
        """Take the ``count`` lowest free slots, ascending; the caller has checked that there are enough."""
        if count > self.free:
            raise ValueError(f"{count} slots asked for, {self.free} free")
        again = [heappop(self._returned) for _ in range(min(count, len(self._returned)))]
        self._free.difference_update(again)
        first = self._untouched
        self._untouched += count - len(again)
        return again + list(range(first, self._untouched))

    def give(self, slots: Iterable[int]) -> None:
        """Return slots; one that is free already is a broken invariant, not a request to refuse."""
        for slot in slots:
            if slot in self._free or not 0 <= slot < self._untouched:
                raise ValueError(f"slot {slot} is free already")
            self._free.add(slot)
            heappush(self._returned, slot)
