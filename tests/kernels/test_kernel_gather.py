"""Kernels that read rows: values and codes are those of the references, bit for bit."""

from dataclasses import replace

import pytest
import torch
from against_reference import DEVICES, assert_exact
from mixed_calls import LATENT_PAIRS, PAIRS, Mixed
from op_variants import VARIANTS

from kvc.ops import OPS
from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape

GATHERS = ("gather_rows", "overlay_retained_rows", "gather_mixed_rows", "stage_history", "place_own_rows")
FORMS = [name for name in VARIANTS if name.startswith(GATHERS)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", GATHERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_examples(op: str, shape: str, device: str) -> None:
    assert_exact(op, "triton", device, *OPS[op].example(SHAPES[shape]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("variant", FORMS)
def test_forms(variant: str, device: str) -> None:
    op, args, kwargs = VARIANTS[variant]()
    assert_exact(op, "triton", device, args, kwargs)


def mixed(kind: str, pair: tuple[str, str], unit: str, ends: tuple[int, int], **more: object) -> Mixed:
    shape = Shape(committed=(5, 0, 37, 16), own=(3, 20, 1, 0), encoding=pair[0], **more)
    return Mixed(shape, pair[1], *ends, unit, ((0, 0), (1, 1), (2, 2)), kind=kind)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("unit", ["token", "page"])
@pytest.mark.parametrize("ends", [(3, 6), (0, 5), (17, 0), (50, 50)])
@pytest.mark.parametrize(("kind", "pair"), [*(("gqa", p) for p in PAIRS), *(("mla", p) for p in LATENT_PAIRS)])
def test_twins(kind: str, pair: tuple[str, str], ends: tuple[int, int], unit: str, device: str) -> None:
    case = mixed(kind, pair, unit, ends)
    args = (
        *(case.pool(case.shape.encoding), case.table, case.pool(case.twin), case.twin_table),
        *(inputs.lengths(case.shape), inputs.committed(case.shape)),
        *(case.scales(case.shape.encoding), case.scales(case.twin)),
    )
    how = {"encoding": pair[0], "tokens_per_page": case.shape.tokens_per_page, **case.how, **case.sizes}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert_exact("gather_mixed_rows", "triton", device, args, {**how, "dtype": dtype})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "nvfp4", "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla"])
@pytest.mark.parametrize("size", [1, 2, 16, 64])
def test_latent_rows_of_every_encoding(encoding: str, size: int, device: str) -> None:
    sizes = {"latent_dim": 512, "rope_dim": 64} if encoding == "fp8_ds_mla" else {}
    case = mixed("mla", (encoding, "bf16"), "token", (3, 6), tokens_per_page=size, **sizes)
    table = case.table
    table[0, 0] = -1
    args = case.pool(encoding), table, inputs.lengths(case.shape), case.scales(encoding)
    how = {"encoding": encoding, "tokens_per_page": size, **case.sizes}
    assert_exact("gather_rows", "triton", device, args, {**how, "dtype": torch.float32})
    apart = torch.full((2 * len(args[0]), args[0].shape[1]), 0xFF, dtype=torch.uint8)[::2]
    apart.copy_(args[0])
    spread = table.repeat_interleave(2, 1)[:, ::2]
    assert_exact("gather_rows", "triton", device, (apart, spread, *args[2:]), {**how, "dtype": torch.float16})


@pytest.mark.gpu
def test_many_long_rows() -> None:
    shape = replace(
        SHAPES["plain"], committed=(4000,) * 40, own=(1,) * 40, latent_dim=512, rope_dim=64, tokens_per_page=64
    )
    case = Mixed(replace(shape, encoding="nvfp4"), "fp8", 64, 256, "token", kind="mla")
    args = (
        *(case.pool("nvfp4"), case.table, case.pool("fp8"), case.twin_table, inputs.lengths(case.shape)),
        *(inputs.committed(case.shape), case.scales("nvfp4"), case.scales("fp8")),
    )
    how = {"encoding": "nvfp4", "tokens_per_page": 64, **case.how, **case.sizes, "dtype": torch.bfloat16}
    assert_exact("gather_mixed_rows", "triton", "cuda", args, how)
