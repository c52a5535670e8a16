"""Generation attention on the device: as close to fp64 as the reference is, whatever the cache holds."""

from dataclasses import replace

import pytest
import torch
from against_reference import DEVICES, run_kernel, run_reference
from mixed_calls import LATENT_PAIRS, PAIRS, Mixed

from kvc.ops import OPS
from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape

DECODES = ("gqa_decode", "mla_decode", "gqa_decode_gathered", "mla_decode_gathered")
GQA = ("fp32", "bf16", "fp8", "nvfp4")
MLA = (*GQA, "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla")
ULP = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check(op: str, device: str, args: object, kwargs: dict[str, object], kernel: str = "triton") -> None:
    """Rounded differently in the last place at most; the log-sum-exp in fp32."""
    got, expected = run_kernel(op, kernel, device, args, kwargs), run_reference(op, args, kwargs)
    out, lse = (x.cpu() for x in got.results)
    ulp = ULP[out.dtype]
    torch.testing.assert_close(out, expected.results[0], rtol=ulp, atol=ulp, equal_nan=True)
    exact = 1e-5 if out.dtype == torch.float32 else 2e-4  # products of 16-bit operands keep 16 bits of each
    torch.testing.assert_close(lse, expected.results[1], rtol=exact, atol=exact, equal_nan=True)


def interpreted(device: str, shape: Shape) -> Shape:
    """The interpreter's conversions to bf16 truncate."""
    return replace(shape, dtype=torch.float16) if device == "cpu" and shape.dtype == torch.bfloat16 else shape


def shaped(shape: Shape, encoding: str, device: str) -> Shape:
    sizes = {"latent_dim": 512, "rope_dim": 64} if encoding == "fp8_ds_mla" else {}
    return interpreted(device, replace(shape, encoding=encoding, **sizes))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("op", "encoding"), [*((o, e) for o in DECODES for e in (GQA if o[0] == "g" else MLA))])
def test_examples(op: str, encoding: str, shape: str, device: str) -> None:
    case = shaped(SHAPES[shape], encoding, device)
    if encoding.startswith("nvfp4") and op.startswith("mla") and case.rope_dim % 16:
        pytest.skip("groups of 16 do not divide the rope")
    check(op, device, *OPS[op].example(case))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("unit", ["token", "page"])
@pytest.mark.parametrize(("kind", "pair"), [*(("gqa", p) for p in PAIRS), *(("mla", p) for p in LATENT_PAIRS)])
def test_twins(kind: str, pair: tuple[str, str], unit: str, device: str) -> None:
    shape = Shape(committed=(5, 0, 70, 16), own=(3, 3, 3, 3), encoding=pair[0])
    case = Mixed(interpreted(device, shape), pair[1], 3, 6, unit, ((0, 0), (2, 1), (2, 4)), kind=kind)
    args, kwargs = OPS[f"{kind}_decode"].example(case.shape)
    args = list(args)
    table = 2 if kind == "gqa" else 3
    args[table] = args[table].clone()
    args[table][2, 2] = -1
    twin = case.pool(pair[1]), case.twin_table, inputs.committed(shape), *case.scales(pair[1])
    check(f"{kind}_decode", device, (*args, *twin), kwargs | case.how)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["gqa_decode", "mla_decode"])
def test_rows_that_a_query_does_not_see_may_hold_anything(op: str, device: str) -> None:
    shape = Shape(committed=(30,), own=(3,), encoding="fp32", dtype=torch.float32)
    args, kwargs = OPS[op].example(shape)
    pool = args[1 if op == "gqa_decode" else 2]
    values = pool.view(torch.float32)
    table = args[2 if op == "gqa_decode" else 3]
    size = values.shape[1] // shape.tokens_per_page
    width = shape.head_dim if op == "gqa_decode" else shape.latent_dim
    page = values[int(table[0, 2])]
    assert size >= width
    page[0 * width : 1 * width] = torch.nan  # position 32, which the last query alone sees
    check(op, device, args, kwargs)


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [(1,), (8192,) * 3, (70_000, 5, 0, 129)])
@pytest.mark.parametrize("own", [1, 4])
def test_long_sequences(lengths: tuple[int, ...], own: int) -> None:
    sizes = {"heads": 16, "kv_heads": 4, "head_dim": 128, "v_head_dim": 128, "latent_dim": 512, "rope_dim": 64}
    shape = Shape(
        committed=tuple(max(0, n - own) for n in lengths), own=(own,) * len(lengths), tokens_per_page=64, **sizes
    )
    for encoding in ("fp8", "nvfp4"):
        for op in ("gqa_decode", "mla_decode"):
            check(op, "cuda", *OPS[op].example(replace(shape, encoding=encoding)))
