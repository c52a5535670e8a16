"""Reused prefixes in the pools: outputs and bytes are those of a sequence that computed its prefix itself."""

import pytest
import torch
from cache_harness import LENGTH, layers, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import KINDS_AND_PAIRS, equal, new_cache, retained, rows_of, spec_text

from kvc.runtime.batch import Request
from kvc.runtime.out_of_pages import OutOfPages

PLAIN = [spec_text(kind, encoding, dtype="bf16") for kind in ("gqa", "mla") for encoding in ("bf16", "fp8")]
MIXED = [spec_text(kind, low, retained(4, 8, high), "bf16") for kind, low, high in KINDS_AND_PAIRS]
each_spec = pytest.mark.parametrize("text", PLAIN + MIXED)


class Prompt:
    """The first ``cut`` tokens of one prompt, then those of another: ids, and the inputs that depend on them."""

    def __init__(self, name, cut=LENGTH):
        self.name, self.cut = name, cut
        self.ids = [*range(cut), *(1000 * ord(name) + at for at in range(cut, LENGTH))]

    def inputs(self, cache, layer, start, stop):
        common, own = (rows(cache, name, layer, 0, LENGTH) for name in ("common", self.name))
        return [torch.cat([x[: self.cut], y[self.cut :]])[start:stop] for x, y in zip(common, own, strict=True)]


def run(cache, prompts, *steps, accepted=None):
    """Steps of {sequence: tokens}, one token each is generation; sequence -> its outputs along tokens."""
    outs = {}
    for step in steps:
        requests = [Request(name, n, "generation" if n == 1 else "context") for name, n in step.items()]
        starts = {name: cache.manager.committed(name) for name in step}
        opened = cache.begin(requests)
        for layer in layers(cache):
            parts = [prompts[name].inputs(cache, layer, at, at + step[name]) for name, at in starts.items()]
            out = cache.layer(layer, *(torch.cat(x) for x in zip(*parts, strict=True)))
            for name, at in opened.rows.items():
                outs.setdefault(name, []).append(out[at])
        cache.commit(opened, accepted)
    return outs


def start(cache, name, ids):
    """Admit a sequence and look its prefix up."""
    cache.admit(name)
    return cache.reuse(name, ids)


def alone(text, prompt, *chunks):
    """A fresh cache in which a sequence computes everything itself."""
    cache = new_cache(text)
    cache.admit("b")
    return cache, run(cache, {"b": prompt}, *({"b": n} for n in chunks))["b"]


def held(cache, name):
    """Bytes of every whole page that a sequence holds, by buffer; other rows of the last one are anybody's."""
    whole, roles = cache.manager.committed(name) // 4, cache.program.bindings[0].pools
    return {
        (layer, role): {page: data for page, data in rows_of(cache, name, role, layer).items() if page < whole}
        for layer in layers(cache)
        for role in roles
    }


def copied(pages):
    return {key: {page: data.clone() for page, data in of.items()} for key, of in pages.items()}


@each_spec
def test_a_reused_prefix_equals_one_computed_in_the_same_chunks(text):
    cache, prompts = new_cache(text), {"a": Prompt("a", 24), "b": Prompt("b", 24)}
    start(cache, "a", prompts["a"].ids)
    run(cache, prompts, {"a": 24}, {"a": 9}, {"a": 1})
    assert start(cache, "b", prompts["b"].ids).tokens == 24
    shared = copied(held(cache, "b"))
    own = run(cache, prompts, {"b": 7}, *[{"b": 1}] * 4)["b"]
    other, expected = alone(text, prompts["b"], 24, 7, 1, 1, 1, 1)
    assert equal(own, expected[len(layers(cache)) :])
    assert equal(held(cache, "b"), held(other, "b"))
    for key, pages in held(cache, "a").items():
        common = pages.keys() & shared[key].keys()
        assert common and equal([pages[page] for page in common], [shared[key][page] for page in common])


@each_spec
def test_sharers_in_one_batch_equal_each_alone(text):
    cache, prompts = new_cache(text), {"a": Prompt("a", 16), "b": Prompt("b", 16)}
    start(cache, "a", prompts["a"].ids)
    run(cache, prompts, {"a": 16})
    assert start(cache, "b", prompts["b"].ids).tokens == 16
    both = run(cache, prompts, {"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 3, "b": 5})
    for name, last in (("a", 3), ("b", 5)):
        _, expected = alone(text, prompts[name], 16, 1, 1, last)
        assert close(text, both[name], expected[len(layers(cache)) :])


def close(text, left, right):
    """Products of matrices whose rows are all tokens of a batch may round otherwise with other rows beside them."""
    if "mla" not in text:
        return equal(left, right)
    return all(torch.allclose(x.float(), y.float(), rtol=2**-5, atol=2**-5) for x, y in zip(left, right, strict=True))


@pytest.mark.parametrize("text", MIXED[:1] + MIXED[3:4])
@settings(max_examples=12, deadline=None)
@given(
    chunks=st.lists(st.integers(1, 40), min_size=1, max_size=4).filter(lambda of: sum(of) <= LENGTH),
    cut=st.integers(0, LENGTH),
    tail=st.integers(1, 8),
)
def test_any_chunks_and_any_common_prefix(text, chunks, cut, tail):
    cache, prompts = new_cache(text), {"a": Prompt("a"), "b": Prompt("b", cut)}
    start(cache, "a", prompts["a"].ids)
    run(cache, prompts, *({"a": n} for n in chunks))
    cache.release("a")
    answer = start(cache, "b", prompts["b"].ids)
    assert answer.tokens <= answer.history_tokens <= min(cut, sum(chunks))
    rest = [tail, 1] if answer.tokens + tail < LENGTH else [1]
    own = run(cache, prompts, *({"b": n} for n in rest))["b"]
    prefix = [answer.tokens] if answer.tokens else []
    other, expected = alone(text, prompts["b"], *prefix, *rest)
    assert equal(own, expected[len(prefix) * len(layers(cache)) :])
    assert equal(held(cache, "b"), held(other, "b"))


@pytest.mark.parametrize("text", MIXED[:1] + PLAIN[:1])
def test_evicted_pages_are_not_found(text):
    """A small cache on which prompts push each other out, against fresh ones."""
    cache = new_cache(text, num_slots=12)
    for turn in range(9):
        prompt = Prompt("abc"[turn % 3], 8)
        tokens = start(cache, "b", prompt.ids).tokens
        own = run(cache, {"b": prompt}, {"b": 36 - tokens}, {"b": 1})["b"]
        _, expected = alone(text, prompt, *[tokens] * bool(tokens), 36 - tokens, 1)
        assert equal(own, expected[bool(tokens) * len(layers(cache)) :])
        cache.release("b")
    statistics = cache.prefix_statistics()
    assert 0 < statistics.hit_tokens < statistics.requested_tokens / 2
    assert repr(cache).endswith(f"slots free; {statistics}>")


def test_a_cache_full_of_evictable_pages_serves_a_step_and_says_what_is_free():
    cache = new_cache(PLAIN[0], num_slots=8)
    prompts = {"a": Prompt("a"), "b": Prompt("b", 8)}
    start(cache, "a", prompts["a"].ids)
    run(cache, prompts, {"a": 32})
    assert start(cache, "b", prompts["b"].ids).tokens == 8
    with pytest.raises(OutOfPages, match="needs 1 slots, 0 of 8 are free"):
        cache.begin([Request("b", 4)])
    cache.release("a")
    run(cache, prompts, {"b": 24})


def test_an_undone_step_is_not_found():
    cache, prompt = new_cache(PLAIN[0]), Prompt("a")
    start(cache, "a", prompt.ids)
    run(cache, {"a": prompt}, {"a": 20}, accepted={"a": 0})
    assert start(cache, "b", prompt.ids).tokens == 0


def test_recorded_tokens_make_a_second_turn_cheap():
    cache, prompt = new_cache(MIXED[0]), Prompt("a")
    start(cache, "a", prompt.ids[:30])
    run(cache, {"a": prompt}, {"a": 30})
    for at in range(30, 40):
        cache.record_tokens("a", prompt.ids[at : at + 1])
        run(cache, {"a": prompt}, {"a": 1})
    cache.release("a")
    assert start(cache, "b", prompt.ids).tokens == 40
