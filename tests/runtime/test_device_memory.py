"""The allocator's cap: below the device by a GiB, never below what is held, never negative."""

import pytest

from kvc.runtime.device_memory import allocator_fraction

GIB = 2**30


@pytest.mark.parametrize(
    ("free", "reserved", "total", "bytes_left"),
    [
        (100 * GIB, 20 * GIB, 140 * GIB, 119 * GIB),  # 20 GiB are another process's
        (GIB, 138 * GIB, 139 * GIB, 138 * GIB),
        (GIB // 2, 138 * GIB, 139 * GIB, 138 * GIB),  # less than a GiB is free: what is held stays
        (0, 0, 139 * GIB, 0),
        (139 * GIB, 0, 139 * GIB, 138 * GIB),
    ],
)
def test_fraction(free, reserved, total, bytes_left):
    assert allocator_fraction(free, reserved, total) == bytes_left / total


@pytest.mark.parametrize("free", [0, 1, GIB - 1, GIB, 7 * GIB])
def test_never_below_what_is_held(free):
    assert allocator_fraction(free, 3 * GIB, 24 * GIB) * 24 * GIB >= 3 * GIB
