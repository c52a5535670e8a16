"""Kernels of the prologue: page tables, lengths, positions, write rows."""

from dataclasses import replace

import pytest
import torch
from against_reference import DEVICES, assert_exact

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

OPS_OF_A_STEP = ("copy_page_tables", "correct_lengths", "step_positions", "write_rows")
CASES = {**SHAPES, "many": Shape(committed=(3, 90, 0) * 50, own=(4, 1, 0) * 50, padding=7)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", OPS_OF_A_STEP)
@pytest.mark.parametrize("shape", CASES)
def test_examples(op: str, shape: str, device: str) -> None:
    assert_exact(op, "triton", device, *OPS[op].example(CASES[shape]))


def lists(pools: list[tuple[int, int, int]]) -> dict[str, list[int]]:
    names = "lifecycles", "pages_per_slot", "offsets"
    return {name: [pool[i] for pool in pools] for i, name in enumerate(names)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("groups", "sequences", "width", "pools"),
    [
        (1, 1, 65_553, [(0, 3, 1)]),
        (2, 3, 1025, [(1, 1, 0), (0, 61, 60), (1, 2, 1)]),
        (1, 1, 1, [(0, 32, 31)]),
        (1, 0, 7, [(0, 1, 0)]),
        (3, 2, 0, [(2, 1, 0)]),
        (1, 2, 5, []),
    ],
)
def test_page_tables(groups: int, sequences: int, width: int, pools: list[tuple[int, int, int]], device: str) -> None:
    slots = torch.arange(groups * sequences * width, dtype=torch.int32).view(groups, sequences, width) % 997 - 1
    assert_exact("copy_page_tables", "triton", device, (slots,), lists(pools))
    turned = slots.transpose(1, 2).contiguous().transpose(1, 2)
    assert_exact("copy_page_tables", "triton", device, (turned,), lists(pools))


@pytest.mark.parametrize("device", DEVICES)
def test_the_largest_page_id(device: str) -> None:
    slots = torch.tensor([[[2**31 // 32 - 1, -1]]], dtype=torch.int32)
    assert_exact("copy_page_tables", "triton", device, (slots,), lists([(0, 32, 31)]))


@pytest.mark.gpu
def test_more_rows_than_a_grid_axis_has() -> None:
    slots = torch.arange(70_001, dtype=torch.int32).view(1, -1, 1) - 1
    assert_exact("copy_page_tables", "triton", "cuda", (slots,), lists([(0, 2, 1), (0, 1, 0)]))
    shape = replace(SHAPES["plain"], committed=(5,), own=(65_553,))
    for op in ("step_positions", "write_rows"):
        assert_exact(op, "triton", "cuda", *OPS[op].example(shape))


@pytest.mark.parametrize("device", DEVICES)
def test_strided_operands(device: str) -> None:
    for op in ("correct_lengths", "step_positions", "write_rows"):
        args, kwargs = OPS[op].example(SHAPES["padding"])
        spread = [x.repeat_interleave(2, x.ndim - 1)[..., ::2] for x in args]
        assert_exact(op, "triton", device, spread, kwargs)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_in_flight(device: str) -> None:
    committed = torch.tensor([3, 9], dtype=torch.int32)
    none = torch.tensor([-1, -1], dtype=torch.int32)
    assert_exact("correct_lengths", "triton", device, (committed, committed, none, committed[:0]), {})
    assert_exact("correct_lengths", "triton", device, (committed[:0],) * 4, {})
    assert_exact("step_positions", "triton", device, (committed[:0], committed[:1], none), {})
