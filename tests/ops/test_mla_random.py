"""Latent attention on random steps: lengths, page tables with holes, sizes and encodings, against fp64."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_exact import context_keys, decode_keys, exact
from mla_pools import FILLS, with_other_bytes
from test_op_mla_context import call
from test_op_mla_decode import WIDTHS

from kvc.ops import OPS
from kvc.ops import mla_inputs as inputs
from kvc.ops.codecs import row_fields, row_format
from kvc.ops.example_inputs import Shape

ops = torch.ops.kvc
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 2**-7, torch.float16: 2**-9}
DIMS = st.integers(1, 5)


@st.composite
def shapes(draw):
    """Sizes that are no multiples of anything but what a codec asks for."""
    sequences = draw(st.integers(1, 4))
    steps = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=sequences, max_size=sequences))
    encoding = draw(st.sampled_from(["fp32", "bf16", "fp8", "fp8_ds_mla"]))
    sizes = {"latent_dim": draw(DIMS), "rope_dim": 2 * draw(DIMS)} | WIDTHS.get(encoding, {})
    return Shape(
        committed=tuple(committed for committed, _ in steps),
        own=tuple(tokens for _, tokens in steps),
        padding=draw(st.integers(0, 3)),
        heads=draw(DIMS),
        nope_dim=draw(DIMS),
        v_head_dim=draw(DIMS),
        tokens_per_page=draw(st.sampled_from([1, 2, 3, 8, 16])),
        encoding=encoding,
        dtype=draw(st.sampled_from(list(TOLERANCE))),
        **sizes,
    )


def holes(data, table):
    """The page table with some pages released."""
    released = data.draw(st.lists(st.booleans(), min_size=table.numel(), max_size=table.numel()))
    return table.masked_fill(torch.tensor(released).view(table.shape), -1)


def close(found, want, dtype):
    (out, lse), (exact_out, exact_lse) = found, want
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), exact_out, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(lse.double(), exact_lse, rtol=5e-6, atol=5e-6)


@given(shapes(), st.booleans(), st.integers(1, 4), st.data())
@settings(deadline=None, max_examples=60)
def test_context(shape, fp8, chunk_pages, data):
    args, how = call(shape, fp8, chunk_pages)
    pool = with_other_bytes(shape, args[4], shape.committed, FILLS["random"])
    args = (*args[:4], pool, holes(data, args[5]), *args[6:])
    close(ops.mla_context.default(*args, **how), exact(context_keys, args, how), shape.dtype)


@given(shapes(), st.integers(1, 4), st.data())
@settings(deadline=None, max_examples=60)
def test_decode(shape, queries, data):
    """As many query tokens for every sequence, more than its length at times."""
    (_, _, pool, table, lengths, *scales), how = OPS["mla_decode"].example(replace(shape, own=(1,) * len(shape.own)))
    tokens = queries * len(shape.own)
    q = inputs.query(shape, "latent", tokens) * shape.latent_dim**-0.5, inputs.query(shape, "rope", tokens)
    args = (*q, pool, holes(data, table), lengths, *scales)
    close(ops.mla_decode.default(*args, **how), exact(decode_keys, args, how), shape.dtype)


@given(shapes(), st.booleans(), st.booleans(), st.data())
@settings(deadline=None, max_examples=60)
def test_append(shape, rotate, keep_k, data):
    """Rows written are rows read, to the bit; no other byte changes."""
    (pool, q, latent, k, *rotation, rows, latent_scale, rope_scale), how = OPS["append_mla"].example(shape)
    how |= {"keep_k": keep_k} if rotate else {"keep_k": keep_k, "layout": None}
    rotation = rotation if rotate else (None, None)
    skipped = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    rows, scales = rows.masked_fill(torch.tensor(skipped, dtype=torch.bool), -1), (latent_scale, rope_scale)
    before = pool.clone()
    q_out, k_out = ops.append_mla.default(pool, q, latent, k, *rotation, rows, *scales, **how)
    q_turned, k_turned = (ops.rope.default(x, *rotation, layout=how["layout"]) if rotate else x for x in (q, k))
    assert torch.equal(q_out, q_turned) and torch.equal(k_out, k_turned if keep_k else k[:0])
    row = row_format("test", shape.encoding, row_fields(("latent", "rope"), (1, 1), (latent.shape[2], k.shape[2])))
    ops.store_rows.default(before, row.encode((latent, k_turned), scales), rows, tokens_per_page=shape.tokens_per_page)
    assert torch.equal(pool, before)


@pytest.mark.parametrize("op", ["project_heads", "expand_mla"])
@given(shape=shapes())
@settings(deadline=None, max_examples=40)
def test_products(op, shape):
    """One product a head, summed in fp32, rounded once."""
    args = OPS[op].example(replace(shape, encoding="fp32"))[0]
    found = OPS[op].overload(*args)
    if op == "project_heads":
        pairs = [(found, torch.einsum("thi,hij->thj", *(x.double() for x in args)))]
    else:
        latent, rope, w_uk, w_uv = (x.double() for x in args[:4])
        k, v = found
        pairs = [
            (k[..., : -rope.shape[2]], torch.einsum("txc,hnc->thn", latent, w_uk)),
            (v, torch.einsum("txc,hcv->thv", latent, w_uv)),
        ]
        assert torch.equal(k[..., -rope.shape[2] :], args[1].expand(-1, k.shape[1], -1))
    for got, want in pairs:
        rounding = torch.finfo(shape.dtype).eps / 2
        torch.testing.assert_close(got.double(), want, rtol=1.01 * rounding, atol=2e-6)
