"""kvc::gqa_context against fp64 attention, and what it must not read."""

from dataclasses import replace

import pytest
import torch
from op_oracles import GQA_ENCODINGS, naive_attention

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

context = torch.ops.kvc.gqa_context.default
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}


def expected(args, kwargs):
    """Every sequence in fp64 on the rows that gather_rows reads."""
    q, k, v, pool, table, committed, starts, *scales = args
    sizes = {"fields": ["k", "v"], "heads": [k.shape[1]] * 2, "dims": [k.shape[2], v.shape[2]]}
    how = {name: kwargs[name] for name in ("encoding", "tokens_per_page")}
    old = torch.ops.kvc.gather_rows.default(pool, table, committed, scales, **sizes, **how, dtype=torch.float32)
    out = torch.zeros(*q.shape[:2], v.shape[2], dtype=torch.float64)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float64)
    for b, cached in enumerate(committed.tolist()):
        own = slice(int(starts[b]), int(starts[b + 1]))
        held = (table[b] >= 0).repeat_interleave(kwargs["tokens_per_page"])[:cached]
        keys, values = (
            torch.cat((rows[b, :cached][held].float(), x[own].float())) for rows, x in zip(old, (k, v), strict=True)
        )
        visible = range(int(held.sum()) + 1, len(keys) + 1)
        out[own], lse[own] = naive_attention(q[own], keys, values, visible, kwargs["softmax_scale"])
    return out, lse


def check(args, kwargs):
    out, lse = context(*args, **kwargs)
    expected_out, expected_lse = expected(args, kwargs)
    tolerance = TOLERANCE[args[0].dtype]
    torch.testing.assert_close(out.double(), expected_out, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=2e-6, atol=2e-6)
    return out, lse


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape, encoding):
    shape = replace(SHAPES[shape], encoding=encoding)
    out, lse = check(*OPS["gqa_context"].example(shape))
    if shape.padding:
        assert not out[-shape.padding :].any() and (lse[-shape.padding :] == -torch.inf).all()


@pytest.mark.parametrize("committed", [0, 1, 300])
def test_more_queries_than_a_block(committed):
    shape = Shape(committed=(committed,), own=(600,), heads=3, kv_heads=1, head_dim=8, v_head_dim=8, rope_dim=8)
    check(*OPS["gqa_context"].example(replace(shape, dtype=torch.float32)))


def test_blocks_shrink_as_the_keys_grow(monkeypatch):
    """With room for few scores the result is the same, block by block of one query."""
    args, kwargs = OPS["gqa_context"].example(Shape(own=(9, 5, 3), dtype=torch.float32))
    whole = context(*args, **kwargs)
    monkeypatch.setattr("kvc.ops.attention._SCORES", 1)
    for found, same in zip(check(args, kwargs), whole, strict=True):
        torch.testing.assert_close(found, same)


def test_pages_not_held_take_no_part():
    args, kwargs = OPS["gqa_context"].example(Shape(committed=(40, 33), own=(3, 1), dtype=torch.float32))
    args[4][0, 0] = args[4][1, 2] = -1
    check(args, kwargs)


def test_own_rows_come_from_k_and_v_and_no_committed_rows_need_no_pool():
    args, kwargs = OPS["gqa_context"].example(Shape(committed=(0, 0), own=(5, 20)))
    out = context(*args, **kwargs)
    empty = list(args)
    empty[3], empty[4] = args[3][:0], torch.full_like(args[4][:, :0], -1)
    plain = [*empty[:7], None, None]
    wide = torch.empty(0, 2 * args[3].shape[1], dtype=torch.uint8)
    for other in (context(*empty, **kwargs), context(*plain[:3], wide, *plain[4:], **{**kwargs, "encoding": "bf16"})):
        assert all(torch.equal(a, b) for a, b in zip(out, other, strict=True))


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("poison", [0x00, 0x7F, 0xAA])
def test_other_bytes_change_nothing(encoding, poison):
    """Everything but the committed rows is overwritten; the example has 0xFF there."""
    args, kwargs = OPS["gqa_context"].example(Shape(encoding=encoding))
    clean = list(args)
    clean[3] = keep_committed(args, kwargs, torch.full_like(args[3], poison))
    found = context(*args, **kwargs)
    assert not found[0].isnan().any()
    assert all(torch.equal(a, b) for a, b in zip(found, context(*clean, **kwargs), strict=True))


def keep_committed(args, kwargs, pool):
    """Copy the committed rows of a pool, and nothing else, into another."""
    _q, k, v, old, table, committed = args[:6]
    size, start = kwargs["tokens_per_page"], 0
    widths = {"fp8": [(1, 1)], "bf16": [(2, 1)], "fp32": [(4, 1)], "nvfp4": [(1, 2), (1, 16)]}[kwargs["encoding"]]
    planes = [(x.shape[1], x.shape[2] * size // group) for size, group in widths for x in (k, v)]
    for heads, width in planes:
        for b, length in enumerate(committed.tolist()):
            for p in range(length):
                for head in range(heads):
                    at = start + (head * size + p % size) * width
                    page = table[b, p // size]
                    pool[page, at : at + width] = old[page, at : at + width]
        start += -(-heads * size * width // 16) * 16
    return pool


def test_a_sequence_does_not_depend_on_the_batch():
    args, kwargs = OPS["gqa_context"].example(Shape(committed=(5, 40, 0), own=(7, 3, 30), dtype=torch.float32))
    q, k, v, pool, table, committed, starts, *scales = args
    out, lse = context(*args, **kwargs)
    for b in range(3):
        own = slice(int(starts[b]), int(starts[b + 1]))
        one = torch.tensor([0, own.stop - own.start], dtype=torch.int32)
        single = context(q[own], k[own], v[own], pool, table[b : b + 1], committed[b : b + 1], one, *scales, **kwargs)
        assert torch.equal(single[0], out[own]) and torch.equal(single[1], lse[own])


def test_strided_inputs():
    args, kwargs = OPS["gqa_context"].example(Shape(dtype=torch.float32))
    strided = [x.permute(2, 0, 1).contiguous().permute(1, 2, 0) for x in args[:3]]
    wide = torch.nn.functional.pad(args[3], (32, 32), value=0xFF)[:, 32:-32]
    assert not wide.is_contiguous()
    for found, same in zip(context(*strided, wide, *args[4:], **kwargs), context(*args, **kwargs), strict=True):
        torch.testing.assert_close(found, same)


def test_sequences_without_tokens():
    args, kwargs = OPS["gqa_context"].example(Shape(committed=(5, 20, 0), own=(0, 4, 0)))
    check(args, kwargs)
