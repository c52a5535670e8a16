"""kvc::gather_mixed_rows is gather, then overlay; with all or nothing retained it is a plain gather."""

import pytest
import torch

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape
from kvc.ops.example_inputs import page_table as table_of

mixed = torch.ops.kvc.gather_mixed_rows.default
gather = torch.ops.kvc.gather_rows.default
overlay = torch.ops.kvc.overlay_retained_rows.default


def plain(pool, table, lengths, scales, encoding, how):
    names = ("fields", "heads", "dims", "tokens_per_page", "dtype")
    return gather(pool, table, lengths, scales, encoding=encoding, **{name: how[name] for name in names})


def same(left, right):
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("unit", ["token", "page"])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_gather_then_overlay(shape, unit):
    args, how = OPS["gather_mixed_rows"].example(SHAPES[shape])
    pool, table, twin, twin_table, lengths, committed, scales, twin_scales = args
    how["unit"] = unit
    low = plain(pool, table, lengths, scales, how["encoding"], how)
    kept = {name: how[name] for name in ("fields", "tokens_per_page", "first", "last", "unit")}
    over = overlay(low, twin, twin_table, lengths, committed, twin_scales, encoding=how["twin_encoding"], **kept)
    assert same(mixed(*args, **how), over)


def test_everything_retained_is_the_plain_high_cache():
    shape = Shape(encoding="fp8")
    args, how = OPS["gather_mixed_rows"].example(shape)
    high = plain(args[2], table_of(shape), args[4], args[7], how["twin_encoding"], how)
    for kept in ({"first": 1000, "last": 0}, {"first": 0, "last": 1000}):
        assert same(mixed(*args[:3], table_of(shape), *args[4:], **(how | kept)), high)


def test_no_page_of_the_twin_is_the_plain_low_cache():
    args, how = OPS["gather_mixed_rows"].example(Shape())
    low = plain(args[0], args[1], args[4], args[6], how["encoding"], how)
    assert same(mixed(*args[:3], torch.full_like(args[3], -1), *args[4:], **how), low)


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xAA])
def test_rows_of_the_twin_that_are_not_read_may_hold_anything(byte):
    """Pages of the twin that no table names, and rows past the length."""
    args, how = OPS["gather_mixed_rows"].example(Shape(committed=(40, 3), own=(2, 2)))
    twin = torch.full_like(args[2], byte)
    held = args[3][args[3] >= 0].unique().long()
    twin[held] = args[2][held]
    assert same(mixed(*args[:2], twin, *args[3:], **how), mixed(*args, **how))
