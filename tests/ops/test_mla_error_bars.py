"""The error bars of docs/semantics.md: errors against fp64 on the dequantized inputs, beside those of torch apart."""

from dataclasses import replace

import pytest
import torch
from mla_exact import context_keys, decode_keys, exact
from test_op_mla_context import SCALES

from kvc.ops import OPS
from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Shape, committed, lengths, page_table, query_starts, whole

ops = torch.ops.kvc
SIZES = Shape(heads=6, nope_dim=56, rope_dim=8, v_head_dim=64, latent_dim=64, tokens_per_page=64, spare_pages=1)
SCALE = 1 / 8


def problem(kind, shape):
    """Queries, latent rows of the whole sequence, weights: random, or flat scores and a mean of 1 in V and latent.

    With flat scores every key counts, and with a mean in V what is lost in a long sum does not cancel.
    """
    nope, rope = inputs.query(shape, "nope"), inputs.query(shape, "rope")
    latent, keys = inputs.latent(whole(shape)), inputs.k_rope(whole(shape))
    w_uk, w_uv = inputs.weights(shape)
    if kind == "flat":
        nope, rope, latent = nope * 1e-3, rope * 1e-3, latent * 0.1 + 1
        w_uv = (w_uv.float() * 0.1 + 1 / shape.latent_dim).to(shape.dtype)
    return nope, rope, latent, keys, w_uk, w_uv


def stored(shape, latent, rope):
    """A pool that holds the rows, and its page table."""
    (pool, *_, rows, _latent, _rope), how = OPS["append_mla"].example(whole(shape))
    scales, how = inputs.scales(shape), how | {"layout": None, "keep_k": False}
    ops.append_mla.default(pool, None, latent, rope, None, None, rows, *scales, **how)
    return pool, page_table(shape)


def context_call(kind, shape, fp8, chunk_pages):
    """A call of mla_context, V in rows."""
    nope, rope, latent, keys, *weights = problem(kind, shape)
    own = [x[len(x) - shape.tokens :] for x in (latent, keys)]
    k, v = ops.expand_mla.default(*own, *weights, None, None, None)
    args = (nope, rope, k, v, *stored(shape, latent, keys), committed(shape), query_starts(shape), *weights)
    how = {"encoding": shape.encoding, "tokens_per_page": 64, "softmax_scale": SCALE, "chunk_tokens": 64 * chunk_pages}
    return (*args, *inputs.scales(shape), *(SCALES if fp8 else (None,) * 3)), how


def decode_call(kind, shape):
    """A call of mla_decode: absorbed queries of the same kind."""
    _nope, rope, latent, keys, *_ = problem(kind, shape)
    q = inputs.query(shape, "latent") * (1e-3 if kind == "flat" else 0.1)
    args = (q, rope, *stored(shape, latent, keys), lengths(shape), *inputs.scales(shape))
    return args, {"encoding": shape.encoding, "tokens_per_page": 64, "softmax_scale": SCALE}


def in_e4m3(weights):
    return weights.float().to(torch.float8_e4m3fn).to(weights.dtype)


def error(found, true):
    return (found.double() - true).norm()


KEYS = [(0, 64), (0, 1000), (1000, 24), (4095, 1), (4000, 96)]  # cached and own


@pytest.mark.parametrize("encoding", ["bf16", "fp8"])
@pytest.mark.parametrize("kind", ["random", "flat"])
@pytest.mark.parametrize("keys", KEYS)
def test_fp8_context(keys, kind, encoding):
    """At most 1.2 x the error of fp64 attention whose probabilities, relative to the row's maximum, are e4m3."""
    shape = replace(SIZES, committed=keys[:1], own=keys[1:], encoding=encoding, dtype=torch.float32)
    args, how = context_call(kind, shape, fp8=True, chunk_pages=7)
    out, _ = ops.mla_context.default(*args, **how)
    true, _ = exact(context_keys, args, how)
    bar, _ = exact(context_keys, args, how, rounded=in_e4m3)
    assert error(out, true) <= 1.2 * error(bar, true)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", ["random", "flat"])
@pytest.mark.parametrize("keys", KEYS)
def test_context_in_the_activation_dtype(keys, kind, dtype):
    """At most 1.1 x the error of torch apart: eager attention in that dtype on the gathered, expanded rows."""
    shape = replace(SIZES, committed=keys[:1], own=keys[1:], encoding="fp8", dtype=dtype)
    args, how = context_call(kind, shape, fp8=False, chunk_pages=7)
    out, _ = ops.mla_context.default(*args, **how)
    true, _ = exact(context_keys, args, how)
    apart, _ = exact(context_keys, args, how, dtype=dtype)
    assert error(out, true) <= 1.1 * error(apart, true)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("encoding", ["bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("kind", ["random", "flat"])
@pytest.mark.parametrize("keys", [(56, 8), (999, 1), (4092, 4)])
def test_decode(keys, kind, encoding, dtype):
    """At most 1.1 x the error of torch apart in that dtype, on the gathered rows."""
    shape = replace(SIZES, committed=keys[:1], own=keys[1:], encoding=encoding, dtype=dtype)
    if encoding == "fp8_ds_mla":
        shape = replace(shape, latent_dim=512, rope_dim=64)
    args, how = decode_call(kind, shape)
    out, _ = ops.mla_decode.default(*args, **how)
    true, _ = exact(decode_keys, args, how)
    apart, _ = exact(decode_keys, args, how, dtype=dtype)
    assert error(out, true) <= 1.1 * error(apart, true)
