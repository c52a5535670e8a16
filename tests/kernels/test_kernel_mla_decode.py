"""The kernel of kvc::mla_decode for fp8 pages: errors against fp64 beside those of torch apart."""

from typing import Any

import pytest
import torch
from against_reference import moved, run_kernel
from mla_exact import decode_keys, exact

from kvc.ops import OPS
from kvc.ops.example_inputs import Shape, scale_for


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
@pytest.mark.parametrize("same_scale", [True, False])
@pytest.mark.parametrize("splits", [1, 2, 5, 64])
@pytest.mark.parametrize("rows", [16, 32])
def test_rows_and_splits(rows: int, splits: int, same_scale: bool) -> None:
    from kvc.ops.mla_decode import gluon

    def with_splits(args: Any, how: dict[str, Any]) -> Any:
        args = [*args[:6], args[5] if same_scale else args[6]]
        return gluon.run(*args, how["softmax_scale"], 2, rows, splits)

    args, how = call("random", LENGTHS, 40, 2)
    within_the_bar("gluon", [*args[:6], args[5] if same_scale else args[6]], how, call=with_splits)


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
