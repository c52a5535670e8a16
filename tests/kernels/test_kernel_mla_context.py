"""Latent context attention and its expansion on the device, beside the references."""

from dataclasses import replace

import pytest
import torch
from against_reference import DEVICES, run_kernel, run_reference, same_bytes
from mixed_calls import LATENT_PAIRS, Mixed
from op_variants import VARIANTS
from test_kernel_decode import ULP, check, interpreted

from kvc.ops import OPS
from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape, query_starts, scale_for

MLA = ("fp32", "bf16", "fp8", "nvfp4", "fp8_ds_mla")
RAGGED = Shape(committed=(5, 0, 40, 16, 0), own=(3, 70, 1, 0, 20), padding=3)
FP16 = torch.float16


def values(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.float8_e4m3fn).float() if x.dtype == torch.uint8 else x.float()


def check_expansion(device: str, args: object, kwargs: dict[str, object]) -> None:
    """A sum in another order may round to the number beside: of codes to the code beside."""
    got, expected = run_kernel("expand_mla", "triton", device, args, kwargs), run_reference("expand_mla", args, kwargs)
    for a, b in zip(got.results, expected.results, strict=True):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
        a = a.cpu()
        loose = 0.13 if a.dtype == torch.uint8 else ULP[a.dtype]
        torch.testing.assert_close(values(a), values(b), rtol=loose, atol=loose * values(b).abs().mean().item())
        assert (values(a) != values(b)).float().mean() < 0.02 or a.dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("v_layout", ["rows", "transposed"])
def test_expansion(v_layout: str, codes: bool, device: str) -> None:
    shape = interpreted(device, replace(RAGGED, rope_dim=20))
    rows = inputs.latent(shape), inputs.k_rope(shape), *inputs.weights(shape)
    starts = query_starts(shape) if v_layout == "transposed" else None
    scales = [scale_for("fp8", field) if codes else None for field in "kv"]
    check_expansion(device, (*rows, starts, *scales), {"v_layout": v_layout})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [*SHAPES, "ragged"])
@pytest.mark.parametrize("encoding", MLA)
@pytest.mark.parametrize("op", ["mla_context", "mla_context_gathered"])
def test_examples(op: str, encoding: str, shape: str, device: str) -> None:
    sizes = {"latent_dim": 512, "rope_dim": 64} if encoding == "fp8_ds_mla" else {}
    case = interpreted(device, replace({**SHAPES, "ragged": RAGGED}[shape], encoding=encoding, **sizes))
    if encoding == "nvfp4" and case.rope_dim % 16:
        pytest.skip("groups of 16 do not divide the rope")
    args, kwargs = OPS[op].example(case)
    check(op, device, args, kwargs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pair", LATENT_PAIRS)
def test_twins(pair: tuple[str, str], device: str) -> None:
    case = Mixed(interpreted(device, replace(RAGGED, encoding=pair[0])), pair[1], 3, 6, "token", ((2, 1),), kind="mla")
    args, kwargs = OPS["mla_context"].example(case.shape)
    twin = case.pool(pair[1]), case.twin_table, *case.scales(pair[1])
    check("mla_context", device, (*args, *twin), kwargs | case.how)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.startswith("mla_context,")])
def test_forms(variant: str) -> None:
    op, args, kwargs = VARIANTS[variant]()
    check(op, "cuda", args, kwargs)


def fp8_call(own: tuple[int, ...], heads: int, codes: bool, dtype: torch.dtype = torch.bfloat16) -> tuple[tuple, dict]:
    """FP8 attention over own rows, V transposed, at the widths of DeepSeek's models."""
    sizes = {"latent_dim": 64, "rope_dim": 64, "nope_dim": 128, "v_head_dim": 128, "heads": heads, "dtype": dtype}
    shape = Shape(committed=(0,) * len(own), own=own, padding=2, encoding="fp8", tokens_per_page=64, **sizes)
    args, kwargs = OPS["mla_context"].example(replace(shape, encoding="fp8"))
    args = list(args)
    rows = inputs.latent(shape), inputs.k_rope(shape), *inputs.weights(shape)
    scales = [scale_for("fp8", field) for field in "qkv"]
    args[2:4] = torch.ops.kvc.expand_mla.default(*rows, query_starts(shape), *scales[1:], v_layout="transposed")
    if codes:
        args[:2] = [torch.ops.kvc.quantize_fp8.default(x, scales[0]) for x in args[:2]]
    args[12:15] = scales
    return tuple(args), kwargs | {"v_layout": "transposed"}


@pytest.mark.gpu
@pytest.mark.parametrize("own", [(1,), (128,), (127, 1, 300), (5, 0, 129), (1000,)])
def test_fp8_attention(own: tuple[int, ...]) -> None:
    """Probabilities are rounded to e4m3: errors of 2^-4 of each, of many the mean."""
    (args, kwargs), (coded, _) = fp8_call(own, 3, codes=False), fp8_call(own, 3, codes=True)
    got, expected = (
        run_kernel("mla_context", "triton", "cuda", args, kwargs),
        run_reference("mla_context", args, kwargs),
    )
    out, lse = (x.cpu() for x in got.results)
    error = (out.float() - expected.results[0].float()).norm() / expected.results[0].float().norm()
    assert error < 0.03
    torch.testing.assert_close(lse, expected.results[1], rtol=2e-3, atol=2e-3)
    again = run_kernel("mla_context", "triton", "cuda", coded, kwargs)
    assert all(same_bytes(a, b) for a, b in zip(got.results, again.results, strict=True))
