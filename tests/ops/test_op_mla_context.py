"""kvc::mla_context: causal attention over own and cached rows, by chunks, in the activation dtype and in fp8."""

from dataclasses import replace

import pytest
import torch
from op_oracles import naive_attention

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


def call(shape, fp8=False, chunk_pages=1):
    """An example in one element type, V in rows."""
    args, how = OPS["mla_context"].example(replace(shape, encoding=shape.encoding))
    weights = inputs.weights(shape)
    k, v = expand(inputs.latent(shape), inputs.k_rope(shape), *weights, None, None, None)
    how = {name: how[name] for name in ("encoding", "tokens_per_page", "softmax_scale")}
    args = (*args[:2], k, v, *args[4:12], *(SCALES if fp8 else (None,) * 3))
    return args, {**how, "chunk_tokens": chunk_pages * shape.tokens_per_page}


def values(x, scale):
    return (
        x.double()
        if scale is None
        else torch.ops.kvc.dequantize_fp8.default(quantize(x, scale), scale, dtype=torch.float32).double()
    )


def expected(args, how):
    q_nope, q_rope, k, v, pool, table, committed, starts, w_uk, w_uv, *scales = args
    sizes = {"fields": ["latent", "rope"], "heads": [1, 1], "dims": [w_uk.shape[2], q_rope.shape[2]]}
    where = {name: how[name] for name in ("encoding", "tokens_per_page")}
    latent, rope = torch.ops.kvc.gather_rows.default(
        pool, table, committed, scales[:2], **sizes, **where, dtype=w_uk.dtype
    )
    q = torch.cat([values(x, scales[2]) for x in (q_nope, q_rope)], -1)
    out = torch.zeros(*q.shape[:2], v.shape[2], dtype=torch.float64)
    for b, cached in enumerate(committed.tolist()):
        own = slice(int(starts[b]), int(starts[b + 1]))
        held = (table[b] >= 0).repeat_interleave(how["tokens_per_page"])[:cached]
        old = expand(latent[b, :cached][held], rope[b, :cached][held], w_uk, w_uv, None, None, None)
        keys, vals = (
            torch.cat((values(a, s), values(x[own], s))) for a, x, s in zip(old, (k, v), scales[3:], strict=True)
        )
        visible = range(int(held.sum()) + 1, len(keys) + 1)
        out[own] = naive_attention(q[own], keys, vals, visible, how["softmax_scale"])[0]
    return out


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape, encoding, fp8):
    args, how = call(replace(SHAPES[shape], encoding=encoding), fp8)
    out, _ = context(*args, **how)
    tolerance = TOLERANCE[args[8].dtype]
    torch.testing.assert_close(out.double(), expected(args, how), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", ["rows", "transposed"])
@pytest.mark.parametrize("given", [("q_nope",), ("q_nope", "q_rope"), ("k", "v"), ("q_nope", "q_rope", "k", "v")])
def test_codes_of_the_caller_have_the_bits_of_the_op(given, layout):
    shape = Shape(committed=(5, 0, 70), own=(17, 3, 1))
    args, how = call(shape, fp8=True, chunk_pages=2)
    plain = context(*args, **how)
    names = ("q_nope", "q_rope", "k", "v")
    scale = dict(zip(names, (SCALES[0], *SCALES), strict=True))
    codes = [quantize(x, scale[n]) if n in given else x for n, x in zip(names, args, strict=False)]
    if layout == "transposed":
        own = inputs.latent(shape), inputs.k_rope(shape), *inputs.weights(shape), query_starts(shape)
        _, codes[3] = expand(*own, *(SCALES[1:] if "v" in given else (None, None)), v_layout=layout)
    same = context(*codes, *args[4:], **how, v_layout=layout)
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))


def test_fp8_queries_need_fp8_keys():
    shape = Shape()
    args, how = call(shape)
    codes = quantize(args[0], SCALES[0])
    for q_scale, words in (
        (None, "q_scale: is missing: q_nope holds codes"),
        (SCALES[0], "fp8 Q goes with fp8 K and V"),
    ):
        with pytest.raises(KvcError, match=words):
            context(codes, *args[1:12], q_scale, None, None, **how)
    with pytest.raises(KvcError, match="k_scale: is missing: k holds codes"):
        context(*args[:2], *(quantize(x, SCALES[1]) for x in args[2:4]), *args[4:], **how)


LONG = Shape(committed=(5, 0, 70, 33), own=(17, 3, 0, 1), padding=2, dtype=torch.float32)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("pages", [2, 3, 5])
def test_the_size_of_chunks_does_not_matter(pages, fp8):
    (args, one), (_, how) = call(LONG, fp8), call(LONG, fp8, chunk_pages=pages)
    for got, want in zip(context(*args, **how), context(*args, **one), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xAA])
def test_other_bytes_change_nothing(byte, encoding):
    """Rows at or past the committed length, and pages that nobody holds, may hold anything."""
    args, how = call(replace(LONG, encoding=encoding))
    pool, table, committed = args[4:7]
    other = torch.full_like(pool, byte)
    row = inputs.row(replace(LONG, encoding=encoding))
    for view, kept in zip(plane_views(other, row.layout(16)), plane_views(pool, row.layout(16)), strict=True):
        for b, cached in enumerate(committed.tolist()):
            for position in range(cached):
                page = table[b, position // 16]
                view[page, :, position % 16] = kept[page, :, position % 16]
    changed = context(*args[:4], other, *args[5:], **how)
    assert all(torch.equal(a, b) for a, b in zip(changed, context(*args, **how), strict=True))


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
    torch.testing.assert_close(out.double(), expected((*args[:5], table, *args[6:]), how), rtol=4e-6, atol=4e-6)
    assert not torch.equal(out, context(*args, **how)[0])


def test_nan_in_own_rows_stays_with_the_queries_that_see_it():
    args, how = call(replace(LONG, committed=(20,), own=(6,), padding=0))
    v = args[3].clone()
    v[4] = torch.nan
    out, _ = context(*args[:3], v, *args[4:], **how)
    assert torch.isfinite(out[:4]).all() and out[4:].isnan().all()
