"""What a query does not see changes no bit of its result, in any attention op; scores of -inf count for nothing."""

from dataclasses import replace

import pytest
import torch
from test_op_mla_context import call

from kvc.ops import OPS, mla_inputs
from kvc.ops import example_inputs as gqa_inputs
from kvc.ops.attention import attend
from kvc.ops.example_inputs import Shape, page_table
from kvc.ops.paging import plane_views

# Odd sizes, and more queries than one block of them: the last rows are told apart inside a block and between blocks.
STEPS = {"drafts": ((41, 300), (5, 5)), "blocks": ((20,), (300,))}
OTHERS = (0xFF, 0x7F)  # NaN and NaN, or -NaN and large numbers, by encoding


def step(name, encoding):
    committed, own = STEPS[name]
    sizes = {"heads": 6, "latent_dim": 24, "rope_dim": 8, "nope_dim": 8, "head_dim": 24, "v_head_dim": 24}
    return Shape(committed=committed, own=own, encoding=encoding, dtype=torch.float32, **sizes)


def spoiled(shape, pool, layout, byte):
    """The pool with the last row of every sequence overwritten."""
    pool, table, tokens = pool.clone(), page_table(shape), shape.tokens_per_page
    for b, length in enumerate(shape.lengths):
        for view in plane_views(pool, layout):
            view[table[b, (length - 1) // tokens], :, (length - 1) % tokens] = byte
    return pool


def before_the_last(shape):
    """The tokens that do not see their sequence's last row."""
    ends = torch.tensor(shape.own).cumsum(0) - 1
    return torch.ones(shape.tokens).index_fill_(0, ends, 0).bool()


@pytest.mark.parametrize("byte", OTHERS)
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("op", ["mla_decode", "gqa_decode"])
def test_bytes_of_later_rows_change_no_bit_in_generation(op, name, encoding, byte):
    shape = step(name, encoding)
    args, how = OPS[op].example(shape)
    index, inputs = (2, mla_inputs) if op == "mla_decode" else (1, gqa_inputs)
    row = mla_inputs.row(shape) if inputs is mla_inputs else gqa_inputs._row(shape)
    other = spoiled(shape, args[index], row.layout(shape.tokens_per_page), byte)
    changed = OPS[op].overload(*args[:index], other, *args[index + 1 :], **how)
    unseen = before_the_last(shape)
    for got, want in zip(changed, OPS[op].overload(*args, **how), strict=True):
        assert torch.equal(got[unseen], want[unseen]) and not torch.equal(got[~unseen], want[~unseen])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("op", ["mla_context", "gqa_context"])
def test_later_own_rows_change_no_bit_in_context(op, name, value):
    shape = step(name, "fp8")
    args, how = call(shape) if op == "mla_context" else OPS[op].example(shape)
    unseen, first = before_the_last(shape), 2 if op == "mla_context" else 1
    other = [x.masked_fill(~unseen[:, None, None], value) for x in args[first : first + 2]]
    changed = OPS[op].overload(*args[:first], *other, *args[first + 2 :], **how)
    for got, want in zip(changed, OPS[op].overload(*args, **how), strict=True):
        assert torch.equal(got[unseen], want[unseen]) and not got[~unseen].isfinite().any()


def test_only_the_seen_part_of_a_spoiled_row_shows():
    """Inf of one feature stays in that feature; queries from its row on have it."""
    q, k, v = (torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    v[0, 3, 1] = torch.inf
    out, _ = attend(q.transpose(0, 1), k, v, [1, 2, 3, 4, 5, 6], 0.5)
    assert out.isinf().nonzero().tolist() == [[i, 0, 1] for i in (3, 4, 5)] and not out.isnan().any()


@pytest.mark.parametrize("keys", [[2], [0, 1, 2, 3, 4, 5]])
def test_keys_whose_scores_are_minus_inf_weigh_nothing(keys):
    """As if they were not there; a query that has none but those gets 0 and -inf, so that parts can be combined."""
    q, k, v = (torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    q[..., 0] = -q[..., 0].abs()
    k[0, keys, 0] = torch.inf
    left = [i for i in range(6) if i not in keys]
    out, lse = attend(q.transpose(0, 1), k, v, [6] * 6, 0.5)
    want = attend(q.transpose(0, 1), k[:, left], v[:, left], [len(left)] * 6, 0.5)
    torch.testing.assert_close(out, want[0])
    torch.testing.assert_close(lse, want[1])


@pytest.mark.parametrize("pages", [1, 3, 8])
def test_a_chunk_of_such_keys_alone(pages):
    """One row a chunk or all in one: a cached rope of inf against queries of the other sign takes no part."""
    shape = replace(step("drafts", "bf16"), committed=(7,), own=(5,), tokens_per_page=1)
    (q_nope, q_rope, k, v, pool, table, *rest), how = call(shape, chunk_pages=pages)
    q_rope[..., 0] = -q_rope[..., 0].abs()
    row, layout = mla_inputs.row(shape), mla_inputs.row(shape).layout(1)
    rope = plane_views(pool, layout)[1].view(torch.bfloat16)
    rope[table[0, 4], ..., 0] = torch.inf
    held = table.clone()
    held[0, 4] = -1
    got, want = (OPS["mla_context"].overload(q_nope, q_rope, k, v, pool, t, *rest, **how) for t in (table, held))
    assert row.planes and all(torch.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(got, want, strict=True))
