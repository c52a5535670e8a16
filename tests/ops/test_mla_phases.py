"""Latent attention as a whole: absorbed against expanded on one cache, sizes and head counts."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from mla_exact import context_keys
from test_op_mla_context import call

from kvc.ops import OPS
from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Shape, lengths

ops = torch.ops.kvc
SMALL = Shape(head_dim=8, v_head_dim=8, rope_dim=8, latent_dim=16, nope_dim=8, encoding="fp32", dtype=torch.float32)


def cache(shape, released=()):
    """Pool, and page table without the pages (sequence, index) that are released."""
    pool, table = inputs.cache(shape)
    for sequence, page in released:
        table[sequence, page] = -1
    return pool, table


def absorbed(shape, released=()):
    """Outputs [T, H, V] of generation: queries into the latent's space, attention there, outputs out of it."""
    (q_latent, q_rope, _, _, *rest), how = OPS["mla_decode"].example(shape)
    w_uk, w_uv = inputs.weights(shape)
    q_latent = ops.project_heads.default(inputs.query(shape, "nope", len(q_latent)), w_uk)
    out, lse = ops.mla_decode.default(q_latent, q_rope, *cache(shape, released), *rest, **how)
    return ops.project_heads.default(out, w_uv), lse


def expanded(shape, chunk_pages=1, released=()):
    """The same queries over the same cache in the context form: all rows but the own ones are cached."""
    args, how = call(shape, chunk_pages=chunk_pages)
    latent, rope = own_rows(shape)
    k, v = ops.expand_mla.default(latent, rope, *args[8:10], None, None, None)
    return ops.mla_context.default(*args[:2], k, v, *cache(shape, released), *args[6:], **how)


def own_rows(shape):
    """The step's rows as the pool has them."""
    sizes = {"fields": ["latent", "rope"], "heads": [1, 1], "dims": [shape.latent_dim, shape.rope_dim]}
    how = {"encoding": shape.encoding, "tokens_per_page": shape.tokens_per_page, "dtype": shape.dtype}
    pool, table = inputs.cache(shape)
    rows = ops.gather_rows.default(pool, table, lengths(shape), inputs.scales(shape), **sizes, **how)
    own = [(b, range(c, c + n)) for b, (c, n) in enumerate(zip(shape.committed, shape.own, strict=True))]
    return [torch.cat([x[b, positions] for b, positions in own]) for x in rows]


STEPS = [((0,), (1,)), ((30, 0, 65), (1, 1, 1)), ((15, 47, 16), (3, 3, 3)), ((129, 64), (8, 8))]


def released_pages(shape):
    """Every second page that lies below the committed length, the first of them on."""
    return [
        (b, page) for b, count in enumerate(shape.committed) for page in range(0, count // shape.tokens_per_page, 2)
    ]


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("tokens_per_page", [1, 4, 16, 64])
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize(("committed", "own"), STEPS)
def test_absorbed_equals_expanded(committed, own, encoding, tokens_per_page, release):
    shape = replace(SMALL, committed=committed, own=own, encoding=encoding, tokens_per_page=tokens_per_page)
    if encoding == "fp8_ds_mla":
        shape = replace(shape, latent_dim=512, rope_dim=64)
    released = released_pages(shape) if release else ()
    for got, want in zip(absorbed(shape, released), expanded(shape, 2, released), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


# Every number of tokens and every number of heads with the ends of the other range, where a core can do it.
TOKENS, HEADS = (1, 31, 1000, 4099), (1, 6, 12, 96, 128)
SIZES = [(t, h) for t, h in product(TOKENS, HEADS) if t <= 31 or t * h <= 50_000 or (t, h) == (1000, 96)]
CHECKED = 64  # first and last tokens of a step that are compared with fp64


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize(("tokens", "heads"), SIZES)
def test_sizes_and_head_counts(tokens, heads, fp8):
    """One sequence in a context step on 37 cached rows, then one more token in generation, against fp64."""
    sizes = {"latent_dim": 8, "nope_dim": 4, "rope_dim": 4, "v_head_dim": 4, "tokens_per_page": 64}
    shape = replace(SMALL, committed=(37,), own=(tokens,), heads=heads, encoding="bf16", **sizes)
    args, how = call(shape, fp8)
    out, lse = ops.mla_context.default(*args, **how)
    ((_, keys),) = context_keys(args, how)
    picked = torch.arange(tokens) if tokens <= 2 * CHECKED else torch.arange(-CHECKED, CHECKED) % tokens
    exact = replace(keys, q=keys.q[picked], seen=keys.seen[picked]).attend(how["softmax_scale"])
    for got, want in zip((out, lse), exact, strict=True):
        torch.testing.assert_close(got[picked].double(), want, rtol=1e-5, atol=1e-5)
    last = replace(shape, committed=(36 + tokens,), own=(1,))
    torch.testing.assert_close(absorbed(last)[0], expanded(last, 16)[0], rtol=1e-5, atol=1e-5)


def test_more_tokens_than_a_grid_axis_holds():
    shape = replace(SMALL, committed=(0,), own=(65553,), heads=1, encoding="fp8", tokens_per_page=1024, latent_dim=8)
    (pool, q, latent, k, table, positions, rows, *scales), how = OPS["append_mla"].example(shape)
    ops.append_mla.default(pool, q, latent, k, table, positions, rows, *scales, **how)
    rope = ops.rope.default(k, table, positions, layout=how["layout"])
    apart = inputs.empty_pool(shape)
    ops.store_rows.default(apart, inputs.row(shape).encode((latent, rope), scales), rows, tokens_per_page=1024)
    assert torch.equal(pool, apart)
