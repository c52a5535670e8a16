"""kvc::gqa_decode against fp64 attention, and what it must not read."""

from dataclasses import replace

import pytest
import torch
from op_oracles import GQA_ENCODINGS, KEEPS_NAN, naive_attention
from test_op_gqa_context import keep_committed

from kvc.ops import OPS
from kvc.ops.codecs import KV, row_fields, row_format
from kvc.ops.example_inputs import SHAPES, Shape

decode = torch.ops.kvc.gqa_decode.default
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}


def check(args, kwargs):
    """Compare with every sequence in fp64 on the rows that gather_rows reads."""
    q, pool, table, lengths, *scales = args
    sizes = {"fields": ["k", "v"], "heads": [kwargs["kv_heads"]] * 2, "dims": [q.shape[2], kwargs["v_head_dim"]]}
    how = {name: kwargs[name] for name in ("encoding", "tokens_per_page")}
    rows = torch.ops.kvc.gather_rows.default(pool, table, lengths, scales, **sizes, **how, dtype=torch.float32)
    out, lse = decode(*args, **kwargs)
    count = q.shape[0] // len(lengths)
    for b, length in enumerate(lengths.tolist()):
        held = (table[b] >= 0).repeat_interleave(kwargs["tokens_per_page"])
        own = slice(b * count, (b + 1) * count)
        visible = [int(held[: max(0, length - count + i + 1)].sum()) for i in range(count)]
        k, v = (x[b, :length][held[:length]] for x in rows)
        expected = naive_attention(q[own], k, v, visible, kwargs["softmax_scale"])
        tolerance = TOLERANCE[q.dtype]
        torch.testing.assert_close(out[own].double(), expected[0], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(lse[own].double(), expected[1], rtol=2e-6, atol=2e-6)
    return out, lse


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape, encoding):
    check(*OPS["gqa_decode"].example(replace(SHAPES[shape], encoding=encoding)))


@pytest.mark.parametrize("own", [1, 2, 5])
@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 64])
def test_page_boundaries_and_several_queries(own, length):
    shape = Shape(committed=(length - own, 3), own=(own, own), heads=9, kv_heads=3, dtype=torch.float32)
    check(*OPS["gqa_decode"].example(shape))


def test_length_zero_and_fewer_rows_than_queries():
    args, kwargs = OPS["gqa_decode"].example(Shape(own=(3, 3, 3), dtype=torch.float32))
    q, pool, table, _lengths, *scales = args
    out, lse = check((q, pool, table, torch.tensor([0, 2, 40], dtype=torch.int32), *scales), kwargs)
    assert not out[:4].any() and (lse[:4] == -torch.inf).all() and lse[4:].isfinite().all()


def test_a_padded_batch_touches_no_page():
    args, kwargs = OPS["gqa_decode"].example(Shape())
    q, pool, table, lengths, *scales = args
    out, lse = decode(q, pool[:0], torch.full_like(table, -1), lengths * 0, *scales, **kwargs)
    assert not out.any() and (lse == -torch.inf).all()


@pytest.mark.parametrize("released", [[0], [1], [0, 1], [2], [0, 1, 2]])
def test_pages_not_held_take_no_part(released):
    args, kwargs = OPS["gqa_decode"].example(Shape(committed=(40,), own=(2,), dtype=torch.float32))
    args[2][0, released] = -1
    check(args, kwargs)


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("poison", [0x00, 0x7F, 0xAA])
def test_other_bytes_change_nothing(encoding, poison):
    args, kwargs = OPS["gqa_decode"].example(Shape(encoding=encoding))
    q, pool, table, lengths, *scales = args
    k = v = torch.empty(0, kwargs["kv_heads"], 32)
    clean = keep_committed((q, k, v, pool, table, lengths), kwargs, torch.full_like(pool, poison))
    found = decode(*args, **kwargs)
    assert not found[0].isnan().any() and not torch.equal(clean, pool)
    again = decode(q, clean, table, lengths, *scales, **kwargs)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("encoding", KEEPS_NAN)
def test_a_draft_that_is_not_finite_changes_no_query_before_it(encoding):
    """Its row is below the length, so only the causal mask hides it."""
    args, kwargs = OPS["gqa_decode"].example(Shape(committed=(14,), own=(2,), encoding=encoding, dtype=torch.float32))
    q, pool, table, *rest = args
    kv = [torch.full((1, 2, 32), torch.nan)] * 2
    planes = row_format("test", encoding, row_fields(KV, (2, 2), (32, 32))).encode(kv, rest[1:])
    torch.ops.kvc.store_rows.default(poisoned := pool.clone(), planes, table[0, :1] * 16 + 15, tokens_per_page=16)
    out, lse = decode(q, poisoned, table, *rest, **kwargs)
    clean, clean_lse = decode(q, pool, table, *rest, **kwargs)
    torch.testing.assert_close(out[0], clean[0])
    torch.testing.assert_close(lse[0], clean_lse[0])
    assert out[1].isnan().all()


def test_a_sequence_does_not_depend_on_the_batch_or_on_the_width():
    args, kwargs = OPS["gqa_decode"].example(Shape(committed=(5, 40, 0), own=(2, 2, 2), dtype=torch.float32))
    q, pool, table, lengths, *scales = args
    out, lse = decode(*args, **kwargs)
    for b, width in enumerate((1, 3, 1)):
        own = slice(2 * b, 2 * b + 2)
        single = decode(q[own], pool, table[b : b + 1, :width], lengths[b : b + 1], *scales, **kwargs)
        assert torch.equal(single[0], out[own]) and torch.equal(single[1], lse[own])


def test_generation_sees_what_context_sees():
    """In fp32 nothing is lost by storing: one step read back equals the same token as a context chunk."""
    shape = Shape(committed=(20, 7), own=(2, 2), encoding="fp32", dtype=torch.float32)
    args, kwargs = OPS["gqa_context"].example(shape)
    q, k, v, pool, table, committed, _starts, *scales = args
    for b in range(2):
        for i in range(2):
            position, token = int(committed[b]) + i, 2 * b + i
            row = table[b, position // 16] * 16 + position % 16
            planes = [torch.ops.kvc.quantize_fp32.default(x[token : token + 1], None) for x in (k, v)]
            torch.ops.kvc.store_rows.default(pool, planes, row.view(1), tokens_per_page=16)
    lengths = committed + 2
    found = decode(q, pool, table, lengths, *scales, kv_heads=2, v_head_dim=32, **kwargs)
    for a, b in zip(found, torch.ops.kvc.gqa_context.default(*args, **kwargs), strict=True):
        torch.testing.assert_close(a, b)


def test_strided_inputs():
    args, kwargs = OPS["gqa_decode"].example(Shape(dtype=torch.float32))
    q = args[0].permute(2, 0, 1).contiguous().permute(1, 2, 0)
    pool = torch.nn.functional.pad(args[1], (48, 16), value=0xFF)[:, 48:-16]
    table = args[2].t().contiguous().t()
    for found, same in zip(decode(q, pool, table, *args[3:], **kwargs), decode(*args, **kwargs), strict=True):
        torch.testing.assert_close(found, same)
