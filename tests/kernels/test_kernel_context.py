"""Context attention on the device: as close to fp64 as the reference is."""

from dataclasses import replace

import pytest
import torch
from against_reference import DEVICES
from mixed_calls import PAIRS, Mixed
from test_kernel_decode import check, interpreted

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

GQA = ("fp32", "bf16", "fp8", "nvfp4")
RAGGED = Shape(committed=(5, 0, 40, 16, 0), own=(3, 70, 1, 0, 20), padding=3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [*SHAPES, "ragged"])
@pytest.mark.parametrize("encoding", GQA)
@pytest.mark.parametrize("op", ["gqa_context", "gqa_context_gathered"])
def test_examples(op: str, encoding: str, shape: str, device: str) -> None:
    case = replace({**SHAPES, "ragged": RAGGED}[shape], encoding=encoding)
    check(op, device, *OPS[op].example(interpreted(device, case)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("unit", ["token", "page"])
@pytest.mark.parametrize("pair", PAIRS)
def test_twins(pair: tuple[str, str], unit: str, device: str) -> None:
    case = Mixed(interpreted(device, replace(RAGGED, encoding=pair[0])), pair[1], 3, 6, unit, ((0, 0), (2, 1)))
    args, kwargs = OPS["gqa_context"].example(case.shape)
    args = list(args)
    args[4] = args[4].clone()
    args[4][2, 2] = -1
    twin = case.pool(pair[1]), case.twin_table, *case.scales(pair[1])
    check("gqa_context", device, (*args, *twin), kwargs | case.how)


@pytest.mark.parametrize("device", DEVICES)
def test_own_rows_that_a_query_does_not_see_may_hold_anything(device: str) -> None:
    args, kwargs = OPS["gqa_context"].example(Shape(committed=(9,), own=(6,), encoding="fp32", dtype=torch.float32))
    args = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    args[2][4, 0] = torch.nan
    args[2][5, 1, 3] = torch.inf
    check("gqa_context", device, args, kwargs)


@pytest.mark.gpu
@pytest.mark.parametrize("own", [(1000, 1, 3000), (1,) * 70])
def test_large_steps(own: tuple[int, ...]) -> None:
    sizes = {"heads": 8, "kv_heads": 2, "head_dim": 128, "v_head_dim": 128, "rope_dim": 128, "tokens_per_page": 64}
    shape = Shape(committed=tuple(range(0, 700 * len(own), 700))[: len(own)], own=own, **sizes)
    for encoding in ("bf16", "fp8"):
        check("gqa_context", "cuda", *OPS["gqa_context"].example(replace(shape, encoding=encoding)))
