"""kvc::mla_context: causal attention over own and cached rows, by chunks, in the activation dtype and in fp8."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from mla_exact import context_keys, exact
from mla_pools import FILLS, with_other_bytes

from kvc.diagnostics import KvcError
from kvc.ops import OPS
from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape, query_starts, scale_for
from kvc.ops.paging import plane_views

context = torch.ops.kvc.mla_context.default
expand = torch.ops.kvc.expand_mla.default
quantize = torch.ops.kvc.quantize_fp8.default
TOLERANCE = {torch.float32: 4e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
SCALES = tuple(scale_for("fp8", field) for field in "qkv")
SCALE = dict(zip(("q_nope", "q_rope", "k", "v"), (SCALES[0], *SCALES), strict=True))
WIDTHS = {"fp8_ds_mla": {"latent_dim": 512, "rope_dim": 64}}


def call(shape, fp8=False, chunk_pages=1):
    """An example in one element type, V in rows."""
    args, how = OPS["mla_context"].example(replace(shape, encoding=shape.encoding))
    weights = inputs.weights(shape)
    k, v = expand(inputs.latent(shape), inputs.k_rope(shape), *weights, None, None, None)
    how = {name: how[name] for name in ("encoding", "tokens_per_page", "softmax_scale")}
    args = (*args[:2], k, v, *args[4:12], *(SCALES if fp8 else (None,) * 3))
    return args, {**how, "chunk_tokens": chunk_pages * shape.tokens_per_page}


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape, encoding, fp8):
    args, how = call(replace(SHAPES[shape], encoding=encoding, **WIDTHS.get(encoding, {})), fp8)
    (out, lse), (want, states) = context(*args, **how), exact(context_keys, args, how)
    tolerance = TOLERANCE[args[8].dtype]
    torch.testing.assert_close(out.double(), want, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), states, rtol=2e-6, atol=2e-6)


CODED = [
    tuple(name for name, coded in zip(("q_nope", "q_rope", "k", "v"), (nope, rope, kv, kv), strict=True) if coded)
    for nope, rope, kv in product((False, True), repeat=3)
]


@pytest.mark.parametrize("pages", [1, 2, 5])
@pytest.mark.parametrize("layout", ["rows", "transposed"])
@pytest.mark.parametrize("given", CODED, ids=" ".join)
def test_codes_of_the_caller_have_the_bits_of_the_op(given, layout, pages):
    """Chunks that end before, at and beyond the end of a history; sequences with nothing cached and without tokens."""
    shape = Shape(committed=(5, 0, 64, 70, 33), own=(17, 3, 5, 1, 0), padding=2)
    args, how = call(shape, fp8=True, chunk_pages=pages)
    plain = context(*args, **how)
    codes = [quantize(x, SCALE[n]) if n in given else x for n, x in zip(SCALE, args, strict=False)]
    if layout == "transposed":
        own = inputs.latent(shape), inputs.k_rope(shape), *inputs.weights(shape), query_starts(shape)
        _, codes[3] = expand(*own, *(SCALES[1:] if "v" in given else (None, None)), v_layout=layout)
    same = context(*codes, *args[4:], **how, v_layout=layout)
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))


@pytest.mark.parametrize("encoding", ["bf16", "fp8_ds_mla"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_codes_of_the_caller_in_other_dtypes(dtype, encoding):
    """Codes from expand_mla under the scales, as the fused graph makes them."""
    shape = replace(Shape(committed=(20, 40), own=(3, 9), dtype=dtype), encoding=encoding, **WIDTHS.get(encoding, {}))
    args, how = call(shape, fp8=True)
    own = inputs.latent(shape), inputs.k_rope(shape), *inputs.weights(shape)
    codes = *(quantize(x, SCALES[0]) for x in args[:2]), *expand(*own, None, *SCALES[1:])
    for got, want in zip(context(*codes, *args[4:], **how), context(*args, **how), strict=True):
        assert torch.equal(got, want) and got.isfinite().all()


@pytest.mark.parametrize("name", ["q_nope", "q_rope"])
def test_fp8_queries_need_fp8_keys(name):
    args, how = call(Shape())
    queries = [quantize(x, SCALE[n]) if n == name else x for n, x in zip(SCALE, args[:2], strict=False)]
    for q_scale, words in (
        (None, f"q_scale: is missing: {name} holds codes"),
        (SCALES[0], "fp8 Q goes with fp8 K and V"),
    ):
        with pytest.raises(KvcError, match=words):
            context(*queries, *args[2:12], q_scale, None, None, **how)
    with pytest.raises(KvcError, match="k_scale: is missing: k holds codes"):
        context(*args[:2], *(quantize(x, SCALES[1]) for x in args[2:4]), *args[4:], **how)


LONG = Shape(committed=(5, 0, 70, 33), own=(17, 3, 0, 1), padding=2, dtype=torch.float32)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("pages", [2, 3, 5, 10**9])
def test_the_size_of_chunks_does_not_matter(pages, fp8):
    (args, one), (_, how) = call(LONG, fp8), call(LONG, fp8, chunk_pages=pages)
    for got, want in zip(context(*args, **how), context(*args, **one), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("fill", FILLS)
def test_other_bytes_change_nothing(fill, encoding):
    """Rows at or past the committed length, and pages that nobody holds, may hold anything."""
    shape = replace(LONG, encoding=encoding, **WIDTHS.get(encoding, {}))
    args, how = call(shape)
    other = with_other_bytes(shape, args[4], shape.committed, FILLS[fill])
    assert not torch.equal(other, args[4])
    changed = context(*args[:4], other, *args[5:], **how)
    assert all(torch.equal(a, b) for a, b in zip(changed, context(*args, **how), strict=True))


@pytest.mark.parametrize("fp8", [False, True])
def test_with_nothing_cached_the_encoding_does_not_matter(fp8):
    shape = Shape(committed=(0, 0, 0), own=(5, 0, 17), padding=1)
    found = []
    for encoding in ("fp32", "bf16", "fp8", "fp8_ds_mla"):
        wide = replace(shape, encoding=encoding, **WIDTHS["fp8_ds_mla"])
        args, how = call(wide, fp8)
        found.append(context(*args, **how))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_inf_in_a_cached_row(pages):
    """Every query of the sequence sees it, whatever the chunks; other sequences do not."""
    args, how = call(replace(LONG, encoding="fp32"), chunk_pages=pages)
    pool, table = args[4].clone(), args[5]
    latent = plane_views(pool, inputs.row(replace(LONG, encoding="fp32")).layout(16))[0].view(torch.float32)
    latent[table[0, 0], 0, 3, 7] = torch.inf
    out, lse = context(*args[:4], pool, *args[5:], **how)
    own = slice(0, LONG.own[0])
    assert not out[own].isfinite().any() and not lse[own].isfinite().any()
    for got, want in zip((out, lse), context(*args, **how), strict=True):
        assert torch.equal(got[own.stop :], want[own.stop :])


def test_a_sequence_does_not_depend_on_the_batch():
    args, how = call(LONG)
    out, lse = context(*args, **how)
    starts = query_starts(LONG).tolist()
    for b in (0, 1, 3):
        own = slice(starts[b], starts[b + 1])
        step = args[4], args[5][b : b + 1], args[6][b : b + 1], torch.tensor([0, own.stop - own.start]).int()
        single = context(*(x[own] for x in args[:4]), *step, *args[8:], **how)
        assert torch.equal(single[0], out[own]) and torch.equal(single[1], lse[own])
    assert not out[starts[-1] :].any() and lse[starts[-1] :].eq(-torch.inf).all()


def test_pages_not_held_take_no_part():
    shape = replace(LONG, committed=(40,), own=(4,), padding=0)
    args, how = call(shape)
    table = args[5].clone()
    table[0, 0] = -1
    out, _ = context(*args[:5], table, *args[6:], **how)
    torch.testing.assert_close(
        out.double(), exact(context_keys, (*args[:5], table, *args[6:]), how)[0], rtol=4e-6, atol=4e-6
    )
    assert not torch.equal(out, context(*args, **how)[0])


def test_nan_in_own_rows_stays_with_the_queries_that_see_it():
    args, how = call(replace(LONG, committed=(20,), own=(6,), padding=0))
    v = args[3].clone()
    v[4] = torch.nan
    out, _ = context(*args[:3], v, *args[4:], **how)
    assert torch.isfinite(out[:4]).all() and out[4:].isnan().all()
