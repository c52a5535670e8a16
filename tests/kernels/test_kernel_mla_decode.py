"""Kernels of kvc::mla_decode and kvc::mla_decode_gathered: errors against fp64 beside those of torch apart."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from against_reference import DEVICES, moved, run_kernel
from mixed_calls import LATENT_PAIRS, Mixed
from mla_exact import decode_keys, exact

from kvc.ops import OPS, mla_inputs
from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape, scale_for

ENCODINGS = ("fp32", "bf16", "fp8", "nvfp4", "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla")
# A row is rounded to the dtype of the queries: scores, here of the size of 5, move.
TINY = {torch.float32: 3e-6, torch.float16: 2**-9, torch.bfloat16: 2**-6}
DTYPES = [torch.float32, *(pytest.param(x, marks=pytest.mark.gpu) for x in (torch.bfloat16, torch.float16))]


def sized(shape: Shape, encoding: str, dtype: torch.dtype) -> Shape:
    """The shape with widths that the encoding can store."""
    widths = {"latent_dim": 512, "rope_dim": 64} if encoding == "fp8_ds_mla" else {}
    if encoding.startswith("nvfp4"):
        widths = {"rope_dim": -(-shape.rope_dim // 16) * 16}
    return replace(shape, encoding=encoding, dtype=dtype, **widths)


def check(op: str, kernel: str, device: str, args: Any, how: dict[str, Any], full: Any = None) -> None:
    """Near the reference on fp32 queries; queries that see nothing get 0 and -inf."""
    dtype = args[0].dtype
    got = [x.cpu() for x in run_kernel(op, kernel, device, args, how).results]
    wide = full or [args[0].float(), args[1].float(), *moved(args[2:], "cpu")]
    want = OPS[op].overload(*wide, **how)
    torch.testing.assert_close(got[0].float(), want[0], rtol=TINY[dtype], atol=TINY[dtype])
    torch.testing.assert_close(got[1], want[1], rtol=TINY[dtype], atol=TINY[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_examples(shape: str, encoding: str, dtype: torch.dtype, device: str) -> None:
    if encoding not in ("fp32", "fp8") and shape != "plain":
        pytest.skip("each is a compilation")
    check("mla_decode", "triton", device, *OPS["mla_decode"].example(sized(SHAPES[shape], encoding, dtype)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ["plain", "odd_heads"])
def test_gathered(shape: str, dtype: torch.dtype, device: str) -> None:
    args, how = OPS["mla_decode_gathered"].example(replace(SHAPES[shape], dtype=dtype))
    args[3][0, :1] = -1
    rows = [x.float() for x in args[2]]
    full = [args[0].float(), args[1].float(), rows, *args[3:]]
    check("mla_decode_gathered", "triton", device, args, how, full)


DRAFTS = Shape(committed=(45, 0, 16, 29), own=(3, 3, 3, 3), dtype=torch.float32, tokens_per_page=4)


@pytest.mark.parametrize("device", DEVICES)
def test_drafts_holes_and_padding(device: str) -> None:
    args, how = OPS["mla_decode"].example(DRAFTS)
    args[3][0, 1:3], args[3][3, 5] = -1, -1
    args[4][1], args[4][2] = 0, 2
    check("mla_decode", "triton", device, args, how)


def mixed_call(pair: tuple[str, str], unit: str, ends: tuple[int, int], dtype: torch.dtype, **more: Any) -> Any:
    shape = Shape(committed=(5, 0, 37, 16), own=(2, 2, 2, 2), encoding=pair[0], dtype=dtype, **more)
    case = Mixed(shape, pair[1], *ends, unit, ((0, 0), (1, 1), (2, 2)), kind="mla")
    queries = [mla_inputs.query(shape, part, 8) for part in ("latent", "rope")]
    low = case.pool(shape.encoding), case.table, inputs.lengths(shape), *case.scales(shape.encoding)
    high = case.pool(case.twin), case.twin_table, inputs.committed(shape), *case.scales(case.twin)
    how = {"encoding": pair[0], "tokens_per_page": shape.tokens_per_page, "softmax_scale": 0.2, **case.how}
    return (*queries, *low, *high), how


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unit", ["token", "page"])
@pytest.mark.parametrize("ends", [(3, 6), (50, 50)])
@pytest.mark.parametrize("pair", LATENT_PAIRS)
def test_twins(pair: tuple[str, str], ends: tuple[int, int], unit: str, dtype: torch.dtype, device: str) -> None:
    if pair not in LATENT_PAIRS[:2] and (device == "cpu" or ends[0] > 3):
        pytest.skip("each is a compilation")
    check("mla_decode", "triton", device, *mixed_call(pair, unit, ends, dtype))


def error(found: torch.Tensor, true: torch.Tensor) -> float:
    return float((found.double() - true.double()).norm())


def within_the_bar(kernel: str, args: Any, how: dict[str, Any], call: Any = None) -> None:
    """At most 1.1 x the error of torch apart in the dtype of the queries, on rows gathered in fp32."""
    args = moved(args, "cuda")
    out, lse = call(args, how) if call else run_kernel("mla_decode", kernel, "cuda", args, how).results
    with torch.device("cuda"):
        true, states = exact(decode_keys, args, how)
        apart, apart_states = exact(decode_keys, args, how, dtype=args[0].dtype)
    assert error(out, true) <= 1.1 * error(apart, true)
    seen = states.isfinite()
    assert torch.equal(lse.isfinite(), seen)
    assert error(lse[seen], states[seen]) <= 1.1 * error(apart_states[seen], states[seen])


def call(kind: str, lengths: tuple[int, ...], heads: int, own: int = 1, encoding: str = "fp8") -> Any:
    """Random queries of a like size, or flat scores with a mean of 1 in the latent; each scale another."""
    count = len(lengths)
    shape = Shape(
        committed=tuple(max(0, n - own) for n in lengths), own=(own,) * count, heads=heads, latent_dim=512,
        rope_dim=64, tokens_per_page=64, encoding=encoding,
    )  # fmt: skip
    (q, q_rope, pool, table, held, latent_scale, rope_scale), how = OPS["mla_decode"].example(shape)
    held[:] = torch.tensor(lengths, dtype=torch.int32)
    if encoding == "fp8":
        rope_scale = scale_for("fp8", "rope") * torch.tensor([0.7, 1 / 0.7])
    q, q_rope = (x * (1e-3 if kind == "flat" else 0.5) for x in (q, q_rope))
    if kind == "outliers":
        q = q * torch.logspace(-6, 2, 512).to(q)
    if kind == "flat":
        codes = pool.view(torch.float8_e4m3fn).float()
        pool = torch.where(codes.isfinite(), 1 / 0.04 + codes, codes).to(torch.float8_e4m3fn).view(torch.uint8)
    return (q, q_rope, pool, table, held, latent_scale, rope_scale), how


LENGTHS = (1, 64, 65, 700, 0, 2048, 127, 1000)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["random", "flat", "outliers"])
@pytest.mark.parametrize(("heads", "own"), [(16, 1), (5, 2), (16, 3), (32, 1), (64, 1), (128, 1), (128, 2), (1, 1)])
def test_fp8_pages_of_64(heads: int, own: int, kind: str) -> None:
    within_the_bar("gluon", *call(kind, LENGTHS, heads, own))


@pytest.mark.gpu
@pytest.mark.parametrize("encoding", ["bf16", "fp8", "nvfp4", "fp8_ds_mla"])
@pytest.mark.parametrize("kind", ["random", "flat"])
@pytest.mark.parametrize(("heads", "own"), [(16, 1), (5, 2), (128, 1)])
def test_error_bar_of_the_general_kernel(heads: int, own: int, kind: str, encoding: str) -> None:
    if kind == "flat" and encoding != "fp8":
        kind = "random"
    within_the_bar("triton", *call(kind, LENGTHS, heads, own, encoding))


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [1, 2, 5, 64])
@pytest.mark.parametrize(("heads", "own"), [(16, 1), (32, 1), (128, 1), (16, 2)])
def test_splits_of_the_fast_kernel(heads: int, own: int, splits: int) -> None:
    from kvc.ops.mla_decode import gluon

    def with_splits(args: Any, how: dict[str, Any]) -> Any:
        return gluon.run(gluon.config_for(heads * own), *args, how["softmax_scale"], own, splits)

    within_the_bar("gluon", *call("random", LENGTHS, heads, own), call=with_splits)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["gluon", "triton"])
def test_holes_strides_and_other_pages(kernel: str) -> None:
    (q, q_rope, pool, table, held, *scales), how = call("random", LENGTHS, 16)
    table[3, 1:4], table[5, 0], table[7, -2] = -1, -1, -1
    spread = torch.full((pool.shape[0], 3 * pool.shape[1]), 0xFF, dtype=torch.uint8)[:, : pool.shape[1]]
    spread.copy_(pool)
    both = torch.cat((q, q_rope), 2)
    args = (both[..., :512], both[..., 512:], spread, table.T.contiguous().T, held, *scales)
    within_the_bar(kernel, args, how)
    out, lse = run_kernel("mla_decode", kernel, "cuda", args, how).results
    assert not out[4].any() and lse[4].eq(-torch.inf).all()
