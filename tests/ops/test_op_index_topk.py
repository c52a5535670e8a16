"""kvc::index_topk against a loop in fp64: which rows, in which order, with ties reported."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvc.ops import OPS
from kvc.ops import sparse_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape, page_table, rows, whole
from kvc.ops.paging import plane_views

topk = torch.ops.kvc.index_topk.default
ENCODINGS = ["fp32", "bf16", "fp8"]  # of the cache; index keys of the last are `index_key`
STEP = Shape(committed=(45, 0, 16, 29), own=(3, 3, 1, 2), padding=2, dtype=torch.float32, encoding="fp32")
NEAR = 1e-5  # scores that differ by less, relative to the size of their terms, count as tied


def naive_keys(args, how):
    """Position -> key in fp64, a sequence each, of the rows whose pages are held; read row by row."""
    pool, table, size = args[2], args[3], how["tokens_per_page"]
    read = {"encoding": how["encoding"], "fields": ["key"], "heads": [1], "dims": [args[0].shape[2]]}
    lengths = torch.full((len(table),), table.shape[1] * size, dtype=torch.int32)
    gather = torch.ops.kvc.gather_rows.default
    (rows,) = gather(pool, table, lengths, [None], **read, tokens_per_page=size, dtype=torch.float32)
    return [
        {p: rows[b, p, 0].double() for p in range(rows.shape[1]) if table[b, p // size] >= 0} for b in range(len(table))
    ]


def naive_scores(args, how):
    """Of every token, position -> (score, size of its terms); nothing for padding."""
    q, weights, _pool, _table, positions, sequence_ids = args
    keys = naive_keys(args, how)
    for t, sequence in enumerate(sequence_ids.tolist()):
        found = {}
        for p, key in keys[sequence].items() if sequence >= 0 else ():
            if p <= positions[t]:
                agree = (q[t].double() @ key * how["score_scale"]).clamp(min=0)
                terms = (weights[t].double() * q.shape[1] ** -0.5 * agree).tolist()
                found[p] = sum(terms), sum(map(abs, terms)) + 1.0
        yield found


def check(args, how):
    """Every list is a best one: of seen positions, each once, as many as there are, none better left out or behind.

    Returns how many neighbours in the order were ties.
    """
    ties = 0
    for chosen, scores in zip(topk(*args, **how).tolist(), naive_scores(args, how), strict=True):
        kept = min(how["top_k"], len(scores))
        assert chosen[kept:] == [-1] * (how["top_k"] - kept)
        chosen = chosen[:kept]
        assert len(set(chosen)) == kept and set(chosen) <= set(scores)
        rest = [p for p in scores if p not in chosen]
        for better, worse in [*itertools.pairwise(chosen), *((chosen[-1], p) for p in rest)]:
            (high, size), (low, other) = scores[better], scores[worse]
            near = abs(high - low) <= NEAR * max(size, other)
            assert near or high > low, (better, worse)
            assert high != low or better < worse, "equal scores: the lower position first"
            ties += near
    return ties


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_against_a_loop(shape, encoding, record_property):
    args, how = OPS["index_topk"].example(replace(SHAPES[shape], encoding=encoding))
    record_property("ties", check(args, how))


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_any_step(data):
    """Chunks and single tokens side by side, padding, holes in the table, top_k from 1 to beyond every length."""
    own = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    committed = tuple(data.draw(st.integers(0, 24)) for _ in own)
    sizes = {"tokens_per_page": data.draw(st.sampled_from([1, 4, 16])), "padding": data.draw(st.integers(0, 2))}
    sizes |= {"top_k": data.draw(st.integers(1, 40)), "index_heads": data.draw(st.integers(1, 4))}
    encoding = data.draw(st.sampled_from(ENCODINGS))
    shape = replace(STEP, committed=committed, own=tuple(own), encoding=encoding, **sizes)
    args, how = OPS["index_topk"].example(shape)
    holes = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    args[3][torch.rand(args[3].shape, generator=holes) < 0.2] = -1
    check(args, how)


def test_ties_go_to_the_lower_position():
    """Equal keys, and relu: a query that no key agrees with scores 0 everywhere."""
    (q, weights, pool, table, positions, ids), how = OPS["index_topk"].example(STEP)
    layout = inputs.index_row(STEP).layout(16)
    (keys,) = (view.view(torch.float32) for view in plane_views(pool, layout))
    keys[table[0, :3]] = keys[table[0, 0], :, :1].clone()
    keys[table[3, :2]] = keys[table[3, :2]].abs()
    q[7:9] = -q[7:9].abs()
    args = (q, weights, pool, table, positions, ids)
    chosen = topk(*args, **how)
    assert chosen[[0, 1, 2, 7, 8]].tolist() == [[0, 1, 2, 3, 4, 5]] * 5 and check(args, how) > 20


def test_negative_weights_put_the_highest_last():
    (q, weights, *rest), how = OPS["index_topk"].example(replace(STEP, top_k=60, index_heads=1))
    up, down = topk(q, weights.abs(), *rest, **how), topk(q, -weights.abs(), *rest, **how)
    seen = up[0][up[0] >= 0]
    scores = [next(naive_scores((q, sign * weights.abs(), *rest), how)) for sign in (1, -1)]
    zeros = sorted(p for p, (score, _) in scores[0].items() if score == 0)
    assert len(zeros) > 5 and up[0, : len(seen)].tolist()[-len(zeros) :] == zeros == down[0, : len(zeros)].tolist()
    ranked = [p for p in seen.tolist() if p not in zeros]
    assert down[0, len(zeros) : len(seen)].tolist() == ranked[::-1]


def test_fewer_rows_than_asked_for_and_padding():
    chosen, how = OPS["index_topk"].example(replace(STEP, top_k=50))
    found = topk(*chosen, **how)
    assert found.shape == (11, 50) and found.dtype == torch.int32
    assert (found >= 0).sum(1).tolist() == [46, 47, 48, 1, 2, 3, 17, 30, 31, 0, 0]
    assert found[0, :46].sort().values.tolist() == list(range(46)) and found[0, 46:].eq(-1).all()


@pytest.mark.parametrize("byte", [0xFF, 0x7F, 0x00, 0xAA])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bytes_of_rows_that_do_not_count_change_nothing(encoding, byte):
    """Rows later than a token's own, pages of nobody: also where those bytes are NaN. The pool is only read."""
    shape = replace(STEP, encoding=encoding, committed=(45, 0, 16, 29), own=(1, 1, 1, 1))
    args, how = OPS["index_topk"].example(shape)
    want, other = topk(*args, **how), torch.full_like(args[2], byte)
    layout, table = inputs.index_row(shape).layout(16), page_table(shape)
    for view, kept in zip(plane_views(other, layout), plane_views(args[2], layout), strict=True):
        for b, length in enumerate(shape.lengths):
            for p in range(length):
                view[table[b, p // 16], :, p % 16] = kept[table[b, p // 16], :, p % 16]
    before = other.clone()
    assert torch.equal(topk(*args[:2], other, *args[3:], **how), want) and torch.equal(other, before)


def test_later_rows_of_the_same_step_change_nothing():
    """The last own row of a chunk is NaN: the tokens before it choose as if it were a number, itself first of all."""
    shape = replace(STEP, committed=(20,), own=(3,), padding=0)
    (q, weights, pool, table, *rest), how = OPS["index_topk"].example(shape)
    broken = pool.clone()
    for view in plane_views(broken, inputs.index_row(shape).layout(16)):
        view[table[0, 1], :, 22 - 16] = 0xFF
    found, want = (topk(q, weights, p, table, *rest, **how) for p in (broken, pool))
    assert torch.equal(found[:2], want[:2]) and found[2, 0] == 22


def test_a_page_that_is_not_held_is_never_chosen():
    args, how = OPS["index_topk"].example(replace(STEP, top_k=60))
    args[3][0, 1], args[3][2] = -1, -1
    found = topk(*args, **how)
    assert set(found[0].tolist()) == {*range(16), *range(32, 46), -1} and found[6].eq(-1).all()
    check(args, how)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_sequence_does_not_depend_on_the_batch(encoding):
    args, how = OPS["index_topk"].example(replace(STEP, encoding=encoding))
    q, weights, pool, table, positions, ids = args
    want = topk(*args, **how)
    for b in range(4):
        own = ids == b
        alone = topk(q[own], weights[own], pool, table[b : b + 1], positions[own], ids[own] * 0, **how)
        assert torch.equal(alone, want[own])
    shuffled = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    moved = topk(q[shuffled], weights[shuffled], pool, table, positions[shuffled], ids[shuffled], **how)
    assert torch.equal(moved, want[shuffled])


def test_blocks_of_tokens(monkeypatch):
    """Scores are held for some tokens at a time; the sizes of a product move its last bits, not the order of these."""
    args, how = OPS["index_topk"].example(STEP)
    want = topk(*args, **how)
    monkeypatch.setattr("kvc.ops.index_topk.reference._SCORES", 300)
    assert torch.equal(topk(*args, **how), want)


def test_as_hugging_face_computes_it():
    """Its expressions, on one sequence whose tokens all see their past: the same scores are chosen, bit for bit.

    The same positions too but for ties, mostly zeros, of which it takes any.
    """
    shape = replace(STEP, committed=(0,), own=(40,), padding=0, top_k=8, index_heads=4)
    args, how = OPS["index_topk"].example(shape)
    q, k, weights = args[0][None], inputs.index_key(shape)[None, :, 0], args[1][None]
    scores = torch.relu(torch.matmul(q.float(), k.transpose(-1, -2).float().unsqueeze(1)) * how["score_scale"])
    scores = torch.matmul((weights * 4**-0.5).unsqueeze(-2), scores).squeeze(-2)
    causal = torch.full((40, 40), -torch.inf).triu(1)
    best, want = (scores + causal)[0].topk(8, dim=-1)
    found = topk(*args, **how)
    taken = scores[0].gather(1, found.clamp(min=0).long()).masked_fill(found < 0, -torch.inf)
    assert torch.equal(taken, best)
    tied = (taken[:, -1:] == (scores + causal)[0]).sum(1) > 1
    assert 0 < tied.sum() < 20 and torch.equal(found[~tied].sort().values, want[~tied].int().sort().values)


def test_nothing_to_score():
    """No token, no sequence, no page, a table without columns."""
    (q, weights, pool, table, positions, ids), how = OPS["index_topk"].example(STEP)
    assert topk(q[:0], weights[:0], pool, table, positions[:0], ids[:0], **how).shape == (0, 6)
    assert topk(q, weights, pool[:0], torch.full_like(table, -1), positions, ids, **how).eq(-1).all()
    assert topk(q, weights, pool, table[:0], positions, torch.full_like(ids, -1), **how).eq(-1).all()
    assert topk(q, weights, pool, table[:, :0], positions * 0, ids, **how).eq(-1).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_keys_are_written_by_quantize_and_store_rows(encoding):
    """The bytes that the other tests read, step by step: keys before this step, then its own."""
    shape = replace(STEP, encoding=encoding, own=(1, 1, 1, 1), padding=0)
    every, stored = whole(shape), torch.full_like(inputs.index_pool(shape), 0xFF)
    codec = "fp8_block" if encoding == "fp8" else encoding
    planes = getattr(torch.ops.kvc, f"quantize_{codec}").default(inputs.index_key(every), None)
    planes = [planes] if isinstance(planes, torch.Tensor) else list(planes)
    own = torch.zeros(every.tokens, dtype=torch.bool)
    own[torch.tensor(shape.lengths).cumsum(0) - 1] = True
    args, how = OPS["index_topk"].example(shape)
    for part in (~own, own):
        assert not torch.equal(stored, args[2])
        torch.ops.kvc.store_rows.default(stored, [x[part] for x in planes], rows(every)[part], tokens_per_page=16)
    assert torch.equal(stored, args[2])
    assert torch.equal(topk(*args[:2], stored, *args[3:], **how), topk(*args, **how))
