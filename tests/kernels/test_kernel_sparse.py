"""Sparse attention and the choice of rows on the device, beside the references."""

from dataclasses import replace

import pytest
import torch
from against_reference import DEVICES, run_kernel, run_reference
from op_variants import VARIANTS
from test_kernel_decode import check, interpreted

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

RAGGED = Shape(committed=(5, 0, 40, 16), own=(3, 7, 1, 0), padding=3, top_k=9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [*SHAPES, "ragged"])
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8"])
def test_attention(encoding: str, shape: str, device: str) -> None:
    case = interpreted(device, replace({**SHAPES, "ragged": RAGGED}[shape], encoding=encoding))
    check("mla_sparse", device, *OPS["mla_sparse"].example(case))


@pytest.mark.gpu
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.startswith("mla_sparse")])
def test_forms(variant: str) -> None:
    op, args, kwargs = VARIANTS[variant]()
    check(op, "cuda", args, kwargs)


@pytest.mark.parametrize("device", DEVICES)
def test_entries_that_do_not_count(device: str) -> None:
    """-1, a position past the token's own, one on a page that is not held; one given twice counts twice."""
    args, kwargs = OPS["mla_sparse"].example(interpreted(device, replace(RAGGED, encoding="fp8")))
    args = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    args[4][0, 2:5] = torch.tensor([-1, 999, 2], dtype=torch.int32)
    args[4][1] = -1
    args[7][2, 0] = -1
    check("mla_sparse", device, args, kwargs)


def check_choice(device: str, args: object, kwargs: dict[str, object]) -> None:
    """The rows chosen; where scores are closer than the rounding of a sum, either order."""
    got, expected = run_kernel("index_topk", "triton", device, args, kwargs), run_reference("index_topk", args, kwargs)
    mine, theirs = got.results[0].cpu(), expected.results[0]
    assert mine.shape == theirs.shape and ((mine < 0) == (theirs < 0)).all()
    differ = (mine.sort(1).values != theirs.sort(1).values).float().mean()
    assert differ < 0.02 and (mine != theirs).float().mean() < 0.05


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [*SHAPES, "ragged"])
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8"])
def test_choice(encoding: str, shape: str, device: str) -> None:
    case = interpreted(device, replace({**SHAPES, "ragged": RAGGED}[shape], encoding=encoding))
    check_choice(device, *OPS["index_topk"].example(case))


@pytest.mark.parametrize("device", DEVICES)
def test_ties_nan_and_pages_that_are_not_held(device: str) -> None:
    """Exact numbers: every score is a small integer, so ties are ties."""
    args, kwargs = OPS["index_topk"].example(Shape(committed=(60,), own=(2,), encoding="fp32", dtype=torch.float32))
    args = [x.clone() for x in args]
    args[0], args[1] = args[0].round().clamp(-1, 1), args[1].round().clamp(-1, 1)
    values = args[2].view(torch.float32)
    args[2] = values.round().clamp(-1, 1).nan_to_num(0.0).contiguous().view(torch.uint8)
    args[2].view(torch.float32)[int(args[3][0, 1]), :128] = torch.nan  # position 16
    args[3][0, 2] = -1
    got, expected = run_kernel("index_topk", "triton", device, args, kwargs), run_reference("index_topk", args, kwargs)
    assert torch.equal(got.results[0].cpu(), expected.results[0])


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [16, 128])
def test_sizes_of_a_model(heads: int) -> None:
    sizes = {"heads": heads, "latent_dim": 512, "rope_dim": 64, "index_heads": 64, "top_k": 300, "tokens_per_page": 64}
    shape = Shape(committed=(1000, 70, 0), own=(1, 1, 1), encoding="fp8", **sizes)
    check("mla_sparse", "cuda", *OPS["mla_sparse"].example(shape))
    check_choice("cuda", *OPS["index_topk"].example(shape))
