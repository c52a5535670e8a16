"""Slots of a pool group that several sequences may hold, and that outlive them under a name until they are needed."""

from collections.abc import Hashable, Iterable

from kvc.runtime.slots import SlotAllocator


class SharedSlots:
    """A `SlotAllocator` with references and names.

    A slot is held (one reference a holder), evictable (no holder, but a name by which its content can be found) or
    free. ``take`` gives the lowest free slots; where they are too few it first evicts those that were given back
    longest ago.
    """

    def __init__(self, num_slots: int) -> None:
        self._slots = SlotAllocator(num_slots)
        self._references: dict[int, int] = {}
        self._names: dict[int, Hashable] = {}
        self._named: dict[Hashable, int] = {}
        self._evictable: dict[int, None] = {}  # a dict keeps the order in which they were given back

    @property
    def num_slots(self) -> int:
        """All slots of the group."""
        return self._slots.num_slots

    @property
    def free(self) -> int:
        """How many slots can be taken now, evictable ones among them."""
        return self._slots.free + len(self._evictable)

    @property
    def evictable(self) -> int:
        """How many of them hold a page that can still be found by its name."""
        return len(self._evictable)

    def references(self, slot: int) -> int:
        """How many holders a slot has."""
        return self._references.get(slot, 0)

    def take(self, count: int) -> list[int]:
        """Take ``count`` slots for one holder, ascending; the caller has checked that there are enough."""
        if count > self.free:
            raise ValueError(f"{count} slots asked for, {self.free} free")
        while self._slots.free < count:
            self._evict()
        slots = self._slots.take(count)
        self._references.update(dict.fromkeys(slots, 1))
        return slots

    def give(self, slots: Iterable[int]) -> None:
        """End one hold of each slot; the first one given back is the first one evicted."""
        for slot in slots:
            if slot not in self._references:
                raise ValueError(f"slot {slot} is free already")
            self._references[slot] -= 1
            if not self._references[slot]:
                self._let_go(slot)

    def find(self, name: Hashable) -> int | None:
        """The slot of that name, held or evictable."""
        return self._named.get(name)

    def share(self, slot: int) -> None:
        """One holder more of a slot that is held or evictable."""
        if slot not in self._references and slot not in self._evictable:
            raise ValueError(f"slot {slot} is free")
        self._evictable.pop(slot, None)
        self._references[slot] = self.references(slot) + 1

    def name(self, slot: int, name: Hashable) -> bool:
        """Name the content of a held slot; False where another slot has that name already."""
        if slot not in self._references:
            raise ValueError(f"slot {slot} is not held")
        if self._names.get(slot, name) != name:
            raise ValueError(f"slot {slot} has another name")
        if name not in self._named:
            self._names[slot], self._named[name] = name, slot
        return self._named[name] == slot

    def _let_go(self, slot: int) -> None:
        del self._references[slot]
        if slot in self._names:
            self._evictable[slot] = None
        else:
            self._slots.give([slot])

    def _evict(self) -> None:
        slot = next(iter(self._evictable))
        del self._evictable[slot]
        del self._named[self._names.pop(slot)]
        self._slots.give([slot])
