"""Whole steps on the tiny library specs: what is stored and returned does not depend on how a batch was run."""

import re

import pytest
import torch
from cache_harness import (
    PIPELINE,
    SPECS,
    decode,
    layers,
    new_cache,
    prefill,
    rows,
    run,
    run_step,
    same,
    same_outputs,
    step_inputs,
    stored,
)

from kvc.diagnostics import KvcError
from kvc.runtime.batch import Request
from kvc.runtime.out_of_pages import OutOfPages

each_spec = pytest.mark.parametrize("spec", SPECS)


def code_of(call, *args, **kwargs):
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    return caught.value.diagnostics[0].code


@each_spec
def test_stored_bytes_do_not_depend_on_chunks_or_phase(spec):
    whole = new_cache(spec)
    run(whole, *prefill("a", 35))
    for steps in (prefill("a", 16, 17, 2), prefill("a", 15, *[1] * 20), prefill("a", 15) + decode("a", steps=20)):
        cache = new_cache(spec)
        run(cache, *steps)
        assert same(stored(cache, "a"), stored(whole, "a"))


@each_spec
def test_a_batch_of_different_lengths_equals_its_sequences_alone(spec):
    lengths = {"a": 1, "b": 16, "c": 37}
    batch = new_cache(spec)
    outs = run(batch, [Request(name, n) for name, n in lengths.items()], *decode(*lengths, steps=3))
    for name, n in lengths.items():
        alone = new_cache(spec)
        expected = run(alone, *prefill(name, n), *decode(name, steps=3))
        assert same(stored(batch, name), stored(alone, name))
        assert same_outputs(spec, outs[name], expected[name])


def test_positions_of_a_mixed_step():
    """Of its rows in order, and of the rows of bucket-sized inputs."""
    cache = new_cache("tiny-fp32")
    run(cache, *prefill("b", 20), *prefill("c", 7), *prefill("d", 3))
    with pytest.raises(KvcError, match="KVC505 positions without an open step"):
        cache.positions()
    cache.admit("a")
    step = cache.begin([Request("a", 3), *(Request(name, 1, "generation") for name in "bcd")])
    assert cache.positions().tolist() == [0, 1, 2, 20, 7, 3]
    assert cache.positions(padded=True).tolist() == [0, 1, 2, 20, 7, 3, 0]
    assert step.padded_tokens == 7
    cache.abort(step)


@each_spec
def test_a_mixed_step_equals_its_phases_alone(spec):
    mixed, apart = new_cache(spec), new_cache(spec)
    for cache in (mixed, apart):
        run(cache, *prefill("b", 20))
    out = run(mixed, [Request("a", 9), Request("b", 1, "generation")])
    expected = run(apart, *prefill("a", 9)) | run(apart, *decode("b"))
    for name in "ab":
        assert same(out[name], expected[name])
        assert same(stored(mixed, name), stored(apart, name))


@pytest.mark.parametrize("passes", range(len(PIPELINE)))
@each_spec
def test_fused_equals_unfused(spec, passes):
    """The program after each number of passes against the whole pipeline's."""
    steps = [[Request("a", 19), Request("b", 4)], *prefill("a", 7), *decode("a", "b", steps=2)]
    fused, plain = new_cache(spec), new_cache(spec, passes=passes)
    left, right = run(fused, *steps), run(plain, *steps)
    for name in "ab":
        assert same_outputs(spec, left[name], right[name])
    for key, tensor in fused.pools.tensors.items():
        assert same(tensor, plain.pools.tensors[key])


@each_spec
def test_poisoned_pools_change_nothing(spec):
    steps = [[Request("a", 19), Request("b", 4)], *prefill("a", 7), *decode("a", "b", steps=3)]
    clean, poisoned = new_cache(spec), new_cache(spec, fill=0xFF)
    left, right = run(clean, *steps), run(poisoned, *steps)
    for name in "ab":
        assert same(left[name], right[name])
        assert same(stored(clean, name), stored(poisoned, name))


@each_spec
def test_recycled_pages_change_nothing(spec):
    used, fresh = new_cache(spec, num_slots=4), new_cache(spec, num_slots=4)
    run(used, *prefill("old", 60))
    used.release("old")
    left, right = (run(cache, *prefill("a", 21), *decode("a", steps=4)) for cache in (used, fresh))
    assert same(left["a"], right["a"])
    assert same(stored(used, "a"), stored(fresh, "a"))


@each_spec
def test_no_byte_outside_the_written_rows_changes(spec):
    cache = new_cache(spec, fill=0xAB)
    run(cache, *prefill("a", 21), *decode("a", steps=2))
    written = sum(layer.numel() for layer in stored(cache, "a"))
    changed = sum(int((tensor != 0xAB).sum()) for tensor in cache.pools.tensors.values())
    # Some stored bytes happen to be 0xAB; none beside them changed.
    kept = sum(int((layer == 0xAB).sum()) for layer in stored(cache, "a"))
    assert changed == written - kept


@each_spec
def test_padded_buckets_equal_exact_ones(spec):
    names = ("a", "b", "c")
    padded, exact = new_cache(spec, buckets=(4,)), new_cache(spec, buckets=(3,))
    steps = [[Request(name, 5 + 3 * i) for i, name in enumerate(names)], *decode(*names, steps=4)]
    left, right = run(padded, *steps), run(exact, *steps)
    for name in names:
        assert same_outputs(spec, left[name], right[name])
    for key, tensor in padded.pools.tensors.items():
        assert same(tensor, exact.pools.tensors[key])


def test_a_caller_may_pad_its_inputs_itself():
    cache, other = (new_cache("tiny-bf16", buckets=(4,)) for _ in range(2))
    for each in (cache, other):
        run(each, [Request("a", 5), Request("b", 8)])
    expected = run(other, *decode("a", "b"))
    step = cache.begin(decode("a", "b")[0])
    assert (step.tokens, step.padded_tokens, step.bucket) == (2, 4, (4, 1))
    starts = {"a": 5, "b": 8}
    for layer in layers(cache):
        inputs = [torch.cat([x, torch.full_like(x, torch.nan)]) for x in step_inputs(cache, step, layer, starts)]
        out = cache.layer(layer, *inputs)
        assert out.shape[0] == 4
        assert (out[2:] == 0).all()
        assert same(out[:2], torch.cat([expected[name][layer] for name in "ab"]))
    cache.commit(step)


def rotated(x, positions, theta=10000.0):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def test_outputs_against_dense_attention():
    """An independent fp64 attention over the whole sequence, whatever mix of chunks and generation steps ran."""
    cache = new_cache("tiny-fp32")
    out = run(cache, *prefill("a", 20, 7), *decode("a", steps=5), *decode("a", tokens=3))["a"]
    for layer in layers(cache):
        q, k, v = (x.double() for x in rows(cache, "a", layer, 0, 35))
        positions = torch.arange(35, dtype=torch.float64)
        q, k = rotated(q, positions), rotated(k, positions)
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(35, 35).triu(1).bool(), -torch.inf)
        expected = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
        torch.testing.assert_close(out[layer].double(), expected, atol=2e-5, rtol=1e-5)


@each_spec
def test_rejected_drafts_leave_no_trace(spec):
    drafted, plain = new_cache(spec), new_cache(spec)
    for cache in (drafted, plain):
        run(cache, *prefill("a", 14))
    first = run_step(drafted, [Request("a", 4, "generation")], {"a": 1})["a"]
    assert drafted.manager.committed("a") == 15
    out = run(drafted, *decode("a", steps=3))["a"]
    expected = run(plain, *decode("a", steps=4))["a"]
    # One row of a product of four rows may round apart from a product of one; everything after it is exact.
    torch.testing.assert_close(first[:, :1], expected[:, :1])
    assert same(out, expected[:, 1:])
    assert same(stored(drafted, "a"), stored(plain, "a"))


def test_preempted_sequence_recomputes_to_the_same_bytes():
    cache, undisturbed = (new_cache("tiny-fp8", num_slots=4) for _ in range(2))
    for each in (cache, undisturbed):
        run(each, *prefill("a", 30), *decode("a", steps=3))
    before = stored(cache, "a")
    assert cache.preempt("a") == 33
    run(cache, *prefill("b", 60))
    cache.release("b")
    assert cache.admit("a") == 33
    run(cache, *prefill("a", 33))
    assert same(stored(cache, "a"), before)
    assert same(run(cache, *decode("a"))["a"], run(undisturbed, *decode("a"))["a"])


def state(cache):
    pages = cache.manager
    tables = pages.slot_tables(pages.sequences).tolist()
    memory = [tensor.clone() for tensor in cache.pools.tensors.values()]
    return (
        tables,
        pages.free_slots,
        [pages.scheduled(name) for name in pages.sequences],
        memory,
        cache.step_buffer.clone(),
    )


def test_out_of_pages_leaves_everything_as_it_was():
    cache = new_cache("tiny-bf16", num_slots=3)
    run(cache, *prefill("a", 20))
    cache.admit("b")
    before = state(cache)
    with pytest.raises(OutOfPages) as caught:
        cache.begin([Request("b", 30), Request("a", 1, "generation")])
    after = state(cache)
    assert before[:3] == after[:3]
    assert same(before[3], after[3]) and same(before[4], after[4])
    assert caught.value.fitting == {"b": 16, "a": 1}
    step = cache.begin([Request("b", 16), Request("a", 1, "generation")])
    cache.abort(step)
    assert state(cache)[:3] == before[:3]


def test_calls_in_the_wrong_order():
    cache = new_cache("tiny-bf16")
    cache.admit("a")
    inputs = rows(cache, "a", 0, 0, 3)
    assert code_of(cache.layer, 0, *inputs) == "KVC505"
    step = cache.begin([Request("a", 3)], prologue=False)
    assert code_of(cache.layer, 0, *inputs) == "KVC505"
    cache.prologue(step)
    cache.layer(0, *inputs)
    assert code_of(cache.commit, step) == "KVC505"
    for layer in layers(cache):
        cache.layer(layer, *rows(cache, "a", layer, 0, 3))
    assert code_of(cache.begin, [Request("a", 3)]) == "KVC505"
    assert code_of(cache.padding_step, 1) == "KVC505"
    assert code_of(cache.preempt, "a") == "KVC505"
    assert code_of(cache.release, "a") == "KVC505"
    assert code_of(cache.commit, step, {"b": 1}) == "KVC507"
    assert code_of(cache.commit, step, {"a": 4}) == "KVC507"
    cache.commit(step)
    assert code_of(cache.commit, step) == "KVC505"
    assert code_of(cache.abort, step) == "KVC505"
    assert code_of(cache.prologue, step) == "KVC505"
    assert cache.manager.committed("a") == 3


@pytest.mark.parametrize(
    "requests",
    [[], [Request("x", 1)], [Request("x", 1, "generation")], ["a"], [Request("a", -1)], [Request("a", 10**6)]],
)
def test_a_refused_begin_opens_no_step(requests):
    cache = new_cache("tiny-bf16")
    cache.admit("a")
    assert code_of(cache.begin, requests).startswith("KVC50")
    cache.commit(cache.begin([Request("a", 1)]))


@pytest.mark.parametrize(
    ("layer", "change", "says"),
    [
        (99, lambda q, k, v: (q, k, v), "layer 99"),
        (-1, lambda q, k, v: (q, k, v), "layer -1"),
        (0, lambda q, k, v: (q[:2], k, v), "q has [2] rows, expected 3 rows"),
        (0, lambda q, k, v: (q, k[:2], v), "k has"),
        (0, lambda q, k, v: (q, k, v.double()), "v has torch.float64"),
        (0, lambda q, k, v: (q[:, :1], k, v), "q has"),
        (0, lambda q, k, v: (q, k, v[..., :-1]), "v has"),
        (0, lambda q, k, v: (q, k.to("meta"), v), "on meta, expected"),
    ],
)
def test_inputs_that_do_not_fit(layer, change, says):
    cache = new_cache("tiny-bf16")
    cache.admit("a")
    cache.begin([Request("a", 3)])
    with pytest.raises(KvcError) as caught:
        cache.layer(layer, *change(*rows(cache, "a", 0, 0, 3)))
    assert caught.value.diagnostics[0].code == "KVC506"
    assert says in str(caught.value)


def test_two_runs_are_equal():
    def pools():
        cache = new_cache("tiny-mixed")
        run(cache, [Request("a", 19), Request("b", 4)], *decode("a", "b", steps=2))
        return list(cache.pools.tensors.values())

    assert same(pools(), pools())


def test_rows_of_one_head_may_come_without_its_axis():
    """Engines hold a latent [T, C] and a rope [T, R]."""
    outs, pools = [], []
    for change in (lambda x: x, lambda x: x[:, 0] if x.shape[1] == 1 else x):
        cache = new_cache("tiny-mla-bf16")
        cache.admit("a")
        step = cache.begin([Request("a", 9)])
        outs.append([cache.layer(i, *map(change, step_inputs(cache, step, i, {"a": 0}))) for i in layers(cache)])
        cache.commit(step)
        pools.append(list(cache.pools.tensors.values()))
    assert same(*outs) and same(*pools)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:3], "layer 0: 3 inputs are given, expected 4: q_nope, q_rope, latent, k_rope"),
        (lambda x: [x[1], x[0], *x[2:]], "layer 0: q_nope has torch.float32 [5, 3, 8]"),
        (lambda x: [*x[:2], x[2][..., :31], x[3]], "layer 0: latent has torch.float32 [5, 1, 31]"),
        (lambda x: [*x[:2], x[2].expand(-1, 3, -1), x[3]], "layer 0: latent has torch.float32 [5, 3, 32]"),
        (lambda x: [*x[:3], x[3][:4]], "layer 0: k_rope has torch.float32 [4, 1, 8]"),
        (lambda x: [x[0].bfloat16(), *x[1:]], "layer 0: q_nope has torch.bfloat16"),
    ],
)
def test_inputs_of_a_latent_layer_that_do_not_fit(change, words):
    cache = new_cache("tiny-mla-fp32")
    cache.admit("a")
    step = cache.begin([Request("a", 5)])
    before = [pool.clone() for pool in cache.pools.tensors.values()]
    with pytest.raises(KvcError, match=re.escape(words)):
        cache.layer(0, *change(step_inputs(cache, step, 0, {"a": 0})))
    assert same(before, list(cache.pools.tensors.values()))
