"""Kernels that encode and store rows: the bytes of both pools and the rotated values are those of the references."""

from dataclasses import replace

import pytest
import torch
from against_reference import DEVICES, assert_exact
from mixed_calls import LATENT_PAIRS, PAIRS, Mixed, write_rows
from op_variants import VARIANTS

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

GQA = ("fp32", "bf16", "fp8", "nvfp4")
MLA = (*GQA, "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla")
APPENDS = [*(("append_gqa", e) for e in GQA), *(("append_mla", e) for e in MLA)]
BF16 = pytest.param(torch.bfloat16, marks=pytest.mark.gpu)
VALUES = [name for name in VARIANTS if name.startswith("append")]


def shaped(shape: Shape, encoding: str, **more: object) -> Shape:
    sizes = {"latent_dim": 512, "rope_dim": 64} if encoding == "fp8_ds_mla" else {}
    return replace(shape, encoding=encoding, **sizes, **more)


def divides(op: str, shape: Shape) -> bool:
    """Whether groups of 16 divide the features."""
    return not (shape.encoding.startswith("nvfp4") and op == "append_mla" and shape.rope_dim % 16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("op", "encoding"), APPENDS)
def test_examples(op: str, encoding: str, shape: str, device: str) -> None:
    case = shaped(SHAPES[shape], encoding)
    if divides(op, case):
        assert_exact(op, "triton", device, *OPS[op].example(case))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("variant", VALUES)
def test_variants(variant: str, device: str) -> None:
    op, args, kwargs = VARIANTS[variant]()
    assert_exact(op, "triton", device, args, kwargs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("kind", "pair"), [*(("gqa", p) for p in PAIRS), *(("mla", p) for p in LATENT_PAIRS)])
def test_twins(kind: str, pair: tuple[str, str], dtype: torch.dtype, device: str) -> None:
    shape = Shape(committed=(5, 0, 37), own=(3, 20, 1), padding=2, encoding=pair[0], dtype=dtype)
    case = Mixed(shape, pair[1], 3, 6, "token", ((1, 1), (2, 2)), kind=kind)
    args, kwargs = OPS[f"append_{kind}"].example(shape)
    twin = torch.full_like(case.pool(pair[1]), 0xFF), write_rows(shape, case.twin_table), *case.scales(pair[1])
    assert_exact(f"append_{kind}", "triton", device, (*args, *twin), {**kwargs, "twin_encoding": pair[1]})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["append_gqa", "append_mla"])
def test_no_rope_no_queries_and_slices(op: str, device: str) -> None:
    shape = Shape(dtype=torch.float16)
    (pool, q, *fields, table, positions, rows, a, b), how = OPS[op].example(shape)
    wide = [torch.cat((x, x), -1)[..., : x.shape[-1]] for x in fields]
    assert_exact(op, "triton", device, (pool, q, *wide, table, positions, rows, a, b), how | {"keep_k": False})
    plain = how | {"layout": None}
    assert_exact(op, "triton", device, (pool, None, *fields, None, None, rows, a, b), plain)
    assert_exact(op, "triton", device, (pool, q, *fields, None, None, rows, a, b), plain)
    apart = torch.full((2 * len(pool), pool.shape[1]), 0xFF, dtype=torch.uint8)[::2]
    assert_exact(op, "triton", device, (apart, q, *fields, table, positions, rows, a, b), how)
    none = [x[:0] for x in (q, *fields, positions, rows)]
    assert_exact(op, "triton", device, (pool, *none[:-2], table, *none[-2:], a, b), how)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["rope", "rope_quantize", "store_rows", "store_retained_rows", "write_back"])
@pytest.mark.parametrize("shape", SHAPES)
def test_ops_of_one_part(op: str, shape: str, device: str) -> None:
    assert_exact(op, "triton", device, *OPS[op].example(SHAPES[shape]))


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 127, 2048, 65_553])
@pytest.mark.parametrize("encoding", ["fp8", "nvfp4"])
def test_sizes_of_a_model(tokens: int, encoding: str) -> None:
    sizes = {"heads": 16, "latent_dim": 512, "rope_dim": 64, "tokens_per_page": 64, "head_dim": 128, "v_head_dim": 128}
    shape = Shape(committed=(70,), own=(tokens,), encoding=encoding, **sizes)
    case = Mixed(shape, "fp8", 64, 256, "token", kind="mla")
    args, kwargs = OPS["append_mla"].example(shape)
    twin = torch.full_like(case.pool("fp8"), 0xFF), write_rows(shape, case.twin_table), *case.scales("fp8")
    assert_exact("append_mla", "triton", "cuda", (*args, *twin), {**kwargs, "twin_encoding": "fp8"})
    if tokens < 65_553:
        assert_exact("append_gqa", "triton", "cuda", *OPS["append_gqa"].example(replace(shape, rope_dim=128)))


@pytest.mark.gpu
def test_pages_that_start_anywhere_are_refused() -> None:
    from kvc.diagnostics import KvcError

    (pool, *args), how = OPS["append_gqa"].example(SHAPES["plain"])
    memory = torch.zeros(pool.numel() + 1, dtype=torch.uint8, device="cuda")
    args = [x.cuda() if isinstance(x, torch.Tensor) else x for x in args]
    with pytest.raises(KvcError, match="KVC551 kvc::append_gqa: pool: has pages that start at no multiple of 16"):
        OPS["append_gqa"].overload(memory[1:].view(pool.shape), *args, **how)
