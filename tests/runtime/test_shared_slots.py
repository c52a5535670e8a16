"""Slots with references and names: held, evictable, free."""

import pytest

from kvc.runtime.shared_slots import SharedSlots


def slots_with(*names, num_slots=4):
    """Slots 0, 1, ... held once each under these names."""
    slots = SharedSlots(num_slots)
    for slot, name in zip(slots.take(len(names)), names, strict=True):
        slots.name(slot, name)
    return slots


def test_a_named_slot_outlives_its_holders():
    slots = slots_with("a", "b")
    slots.give([0])
    assert (slots.free, slots.evictable, slots.find("a"), slots.references(0)) == (3, 1, 0, 0)
    slots.share(0)
    slots.share(0)
    assert (slots.free, slots.evictable, slots.references(0)) == (2, 0, 2)
    slots.give([0])
    assert (slots.free, slots.references(0)) == (2, 1)


def test_free_slots_are_taken_before_named_ones_are_evicted():
    slots = slots_with("a", "b")
    slots.give([1, 0])
    assert slots.take(2) == [2, 3]
    assert (slots.find("a"), slots.find("b")) == (0, 1)
    assert slots.take(1) == [1]  # given back first
    assert (slots.find("a"), slots.find("b")) == (0, None)


def test_a_shared_slot_is_as_recent_as_its_last_holder():
    slots = slots_with("a", "b", num_slots=2)
    slots.give([0, 1])
    slots.share(0)
    slots.give([0])
    slots.take(1)
    assert (slots.find("a"), slots.find("b")) == (0, None)


def test_the_first_slot_of_a_name_keeps_it():
    slots = slots_with("a", "a")
    assert slots.find("a") == 0
    slots.give([1])
    assert (slots.free, slots.evictable) == (3, 0)
    slots.give([0])
    assert slots.evictable == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.give([2]), "slot 2 is free already"),
        (lambda s: s.give([1]), "slot 1 is free already"),  # evictable
        (lambda s: s.share(2), "slot 2 is free"),
        (lambda s: s.name(1, "c"), "slot 1 is not held"),
        (lambda s: s.name(0, "c"), "slot 0 has another name"),
        (lambda s: s.take(4), "4 slots asked for, 3 free"),
    ],
)
def test_broken_invariants_are_not_hidden(call, message):
    slots = slots_with("a", "b")
    slots.give([1])
    with pytest.raises(ValueError, match=message):
        call(slots)
