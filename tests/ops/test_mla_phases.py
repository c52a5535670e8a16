"""Latent attention as a whole: absorbed against expanded on one cache, sizes and head counts, and fp8's error bars."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from test_op_mla_context import SCALES, call, quantize

from kvc.ops import OPS
from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Shape, lengths, page_table, whole

ops = torch.ops.kvc
SMALL = Shape(head_dim=8, v_head_dim=8, rope_dim=8, latent_dim=16, nope_dim=8, encoding="fp32", dtype=torch.float32)


def absorbed(shape):
    """Outputs [T, H, V] of generation: queries into the latent's space, attention there, outputs out of it."""
    (q_latent, q_rope, *cache), how = OPS["mla_decode"].example(shape)
    w_uk, w_uv = inputs.weights(shape)
    q_latent = ops.project_heads.default(inputs.query(shape, "nope", len(q_latent)), w_uk)
    out, lse = ops.mla_decode.default(q_latent, q_rope, *cache, **how)
    return ops.project_heads.default(out, w_uv), lse


def expanded(shape, chunk_pages=1):
    """The same queries over the same cache in the context form: all rows but the own ones are cached."""
    args, how = call(shape, chunk_pages=chunk_pages)
    latent, rope = own_rows(shape)
    k, v = ops.expand_mla.default(latent, rope, *args[8:10], None, None, None)
    return ops.mla_context.default(*args[:2], k, v, *args[4:], **how)


def own_rows(shape):
    """The step's rows as the pool has them."""
    sizes = {"fields": ["latent", "rope"], "heads": [1, 1], "dims": [shape.latent_dim, shape.rope_dim]}
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "dtype": shape.dtype}
    pool, table = inputs.cache(shape)
    rows = ops.gather_rows.default(pool, table, lengths(shape), inputs.scales(shape), **sizes, **how)
    own = [(b, range(c, c + n)) for b, (c, n) in enumerate(zip(shape.committed, shape.own, strict=True))]
    return [torch.cat([x[b, positions] for b, positions in own]) for x in rows]


@pytest.mark.parametrize("tokens_per_page", [1, 16, 64])
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize(("committed", "own"), [((0,), (1,)), ((30, 0, 65), (1, 1, 1)), ((15, 47, 16), (3, 3, 3))])
def test_absorbed_equals_expanded(committed, own, encoding, tokens_per_page):
    shape = replace(SMALL, committed=committed, own=own, encoding=encoding, tokens_per_page=tokens_per_page)
    for got, want in zip(absorbed(shape), expanded(shape, chunk_pages=2), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


# Every pair of (tokens, heads) with an end of either range in it.
SIZES = [(t, h) for t, h in product((1, 31, 1000, 4099), (1, 6, 12, 96, 128)) if t * h <= 31 * 128 or h <= 6]


@pytest.mark.parametrize(("tokens", "heads"), SIZES)
def test_sizes_and_head_counts(tokens, heads):
    """One sequence in a context step on 37 cached rows, then one more token in generation, against fp64."""
    shape = replace(SMALL, committed=(37,), own=(tokens,), heads=heads, tokens_per_page=64, encoding="bf16")
    args, how = call(shape, chunk_pages=1)
    out, _ = ops.mla_context.default(*args, **how)
    torch.testing.assert_close(out.double(), exact_context(args, how), rtol=1e-5, atol=1e-5)
    last = replace(shape, committed=(36 + tokens,), own=(1,))
    torch.testing.assert_close(absorbed(last)[0], expanded(last)[0], rtol=1e-5, atol=1e-5)


def exact_context(args, how):
    """fp64, the queries in blocks; one sequence."""
    q_nope, q_rope, k, v, pool, table, committed, _, w_uk, w_uv, *scales = args
    cached = int(committed)
    sizes = {"fields": ["latent", "rope"], "heads": [1, 1], "dims": [w_uk.shape[2], q_rope.shape[2]]}
    where = {name: how[name] for name in ("encoding", "tokens_per_page")}
    latent, rope = ops.gather_rows.default(pool, table, committed, scales[:2], **sizes, **where, dtype=w_uk.dtype)
    old = ops.expand_mla.default(latent[0, :cached], rope[0, :cached], w_uk, w_uv, None, None, None)
    keys, values = (torch.cat(pair).double().transpose(0, 1) for pair in zip(old, (k, v), strict=True))
    q = torch.cat((q_nope, q_rope), -1).double().transpose(0, 1)
    parts, count = [], torch.arange(keys.shape[1])
    for start in range(0, q.shape[1], 512):
        block = q[:, start : start + 512]
        seen = cached + start + torch.arange(block.shape[1]) + 1
        scores = (block @ keys.transpose(1, 2) * how["softmax_scale"]).masked_fill(count >= seen[:, None], -torch.inf)
        parts.append(scores.softmax(-1) @ values)
    return torch.cat(parts, 1).transpose(0, 1)


def test_more_tokens_than_a_grid_axis_holds():
    shape = replace(SMALL, committed=(0,), own=(65553,), heads=1, encoding="fp8", tokens_per_page=1024, latent_dim=8)
    (pool, q, latent, k, table, positions, rows, *scales), how = OPS["append_mla"].example(shape)
    ops.append_mla.default(pool, q, latent, k, table, positions, rows, *scales, **how)
    rope = ops.rope.default(k, table, positions, layout=how["layout"])
    apart = inputs.empty_pool(shape)
    ops.store_rows.default(apart, inputs.row(shape).encode((latent, rope), scales), rows, tokens_per_page=1024)
    assert torch.equal(pool, apart)


# ---- error bars, docs/semantics.md -----------------------------------------------------------------------------------


def hard(kind, keys, width, heads=2):
    """q, K, V [T, H, width] in fp32: random, or flat scores and a mean of 1 in V, where rounding adds up."""
    made = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(keys, heads, width, generator=made) for _ in range(3))
    return (q, k, v) if kind == "random" else (q * 1e-3, k, v * 0.1 + 1)


def exact_rows(q, k, v, last, rounded=lambda weights: weights):
    """fp64 attention of the last queries, [last, H, V]; ``rounded`` is what probabilities go through, max 1 a row."""
    q, k, v = (x.double().transpose(0, 1) for x in (q[-last:], k, v))
    hidden = torch.arange(k.shape[1]) > torch.arange(k.shape[1] - last, k.shape[1])[:, None]
    scores = (q @ k.transpose(1, 2) / 8).masked_fill(hidden, -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return (rounded(weights) @ v / weights.sum(-1, keepdim=True)).transpose(0, 1)


@pytest.mark.parametrize("kind", ["random", "flat"])
@pytest.mark.parametrize("keys", [64, 1000, 4096])
def test_fp8_context_is_within_its_error_bar(kind, keys):
    """At most 1.2 x the error of fp64 attention whose probabilities, relative to the row's maximum, are e4m3."""
    q, k, v = hard(kind, keys, 64)
    shape = replace(SMALL, committed=(0,), own=(keys,), heads=2, nope_dim=56, rope_dim=8, v_head_dim=64)
    args, how = call(shape, fp8=True)
    out, _ = ops.mla_context.default(q[..., :56], q[..., 56:], k, v, *args[4:], **(how | {"softmax_scale": 1 / 8}))
    codes = [e4m3(x, scale) for x, scale in zip((q, k, v), SCALES, strict=True)]
    exact = exact_rows(*codes, 8)
    bar = (exact_rows(*codes, 8, lambda weights: weights.float().to(torch.float8_e4m3fn).double()) - exact).norm()
    assert (out[-8:].double() - exact).norm() <= 1.2 * bar


def e4m3(x, scale):
    return ops.dequantize_fp8.default(quantize(x, scale), scale, dtype=torch.float32).double()


@pytest.mark.parametrize("kind", ["random", "flat"])
@pytest.mark.parametrize("keys", [64, 1000, 4096])
def test_fp8_decode_is_within_its_error_bar(kind, keys):
    """At most 1.1 x the error of the ops apart: rows gathered in fp32, probabilities in 16 bits, out in bf16."""
    q, latent, _ = hard(kind, keys, 64)
    latent = latent[:, :1] + (kind == "flat")
    shape = replace(
        SMALL, committed=(keys - 8,), own=(8,), heads=2, encoding="fp8", latent_dim=64, dtype=torch.bfloat16
    )
    (pool, _, _, k_rope, table, positions, rows, *scales), how = OPS["append_mla"].example(whole(shape))
    ops.append_mla.default(pool, None, latent.bfloat16(), k_rope, table, positions, rows, *scales, **how)
    _, how = OPS["mla_decode"].example(shape)
    q_latent, q_rope = q[-8:].bfloat16(), torch.zeros(8, 2, 8, dtype=torch.bfloat16)
    out, _ = ops.mla_decode.default(
        q_latent, q_rope, pool, page_table(shape), lengths(shape), *scales, **(how | {"softmax_scale": 1 / 8})
    )
    stored = e4m3(latent.bfloat16(), scales[0]).expand(-1, 2, -1)
    exact = exact_rows(q_latent, stored, stored, 8)
    apart = exact_rows(q_latent, stored, stored, 8, lambda weights: weights.bfloat16().double()).bfloat16()
    assert (out.double() - exact).norm() <= 1.1 * (apart.double() - exact).norm()
