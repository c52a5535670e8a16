"""Free slots against a sorted list."""

import random

import pytest

from kvc.runtime.slots import SlotAllocator


@pytest.mark.parametrize("seed", range(20))
def test_the_lowest_free_slots_are_given(seed):
    rng, slots = random.Random(seed), SlotAllocator(30)
    free, taken = list(range(30)), []
    for _ in range(60):
        assert slots.free == len(free)
        if rng.random() < 0.5:
            count = rng.randint(0, len(free))
            assert slots.take(count) == free[:count]
            taken, free = taken + free[:count], free[count:]
        else:
            back = rng.sample(taken, rng.randint(0, len(taken)))
            slots.give(back)
            taken, free = [slot for slot in taken if slot not in back], sorted(free + back)


def test_broken_invariants_are_not_hidden():
    slots = SlotAllocator(4)
    slots.take(3)
    slots.give([1])
    for again in (1, 3, -1, 4):
        with pytest.raises(ValueError, match="free already"):
            slots.give([again])
    with pytest.raises(ValueError, match="3 slots asked for, 2 free"):
        slots.take(3)
