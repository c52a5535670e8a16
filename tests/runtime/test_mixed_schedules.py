"""Compiled mixed caches against plain tensors: random steps of both phases, drafts taken back, poisoned pools."""

from dataclasses import replace

import pytest
import torch
from cache_harness import layers
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import KINDS_AND_PAIRS, new_cache, retained, spec_text
from mixed_model import Model, Retention

from kvc.runtime.batch import Request
from kvc.runtime.out_of_pages import OutOfPages

LAYOUTS = {"gqa": "half", "mla": "interleaved"}


def numbers(page):
    """Numbers of tokens around a page's edges, and beyond any sequence here."""
    return st.sampled_from(sorted({0, 1, max(page - 1, 0), page, page + 1, 2 * page, 7, 200}))


@st.composite
def settings_of_twins(draw):
    page = draw(st.sampled_from([1, 2, 4]))
    first, last = draw(st.tuples(numbers(page), numbers(page)).filter(any))
    return page, first, last, draw(st.sampled_from(["token", "page"]))


@st.composite
def events(draw):
    """What an engine does: steps, and now and then a sequence that goes."""
    names = st.sampled_from("abc")
    kind = draw(st.sampled_from(["step"] * 6 + ["preempt", "release", "abort"]))
    if kind in ("preempt", "release"):
        return kind, draw(names)
    context = draw(st.dictionaries(names, st.integers(1, 11), max_size=2))
    generation = [name for name in draw(st.lists(names, max_size=3, unique=True)) if name not in context]
    tokens, back = draw(st.integers(1, 4)), draw(st.dictionaries(names, st.integers(0, 4)))
    return kind, context, generation, tokens, back


class Both:
    """A cache and its model, which must agree after every step."""

    def __init__(self, kind, low, high, page, first, last, unit):
        text = spec_text(kind, low, retained(first, last, high, unit), "fp32", page)
        self.cache = new_cache(text, num_slots=max(60 // page, 20))
        bound = [self.cache.bound_tensors(layer) for layer in layers(self.cache)]
        weights = [(one.get("weight.w_uk"), one.get("weight.w_uv")) for one in bound]
        self.model = Model(kind, Retention(low, high, first, last, unit, page), weights, LAYOUTS[kind])
        self.random = torch.Generator().manual_seed(7)
        graph = self.cache.program.graphs[self.cache.program.bindings[0].signature, "context"]
        self.shapes = {
            str(node.target): node.meta["val"].shape[1:] for node in graph.placeholders if node.meta["role"] == "input"
        }

    def play(self, event):
        """One event; sequences that are not there begin."""
        if event[0] in ("preempt", "release"):
            self._drop(*event)
        else:
            self._step(*event)

    def _drop(self, how, name):
        if name in self.cache.manager.sequences:
            getattr(self.cache, how)(name)
            self.model.rows.pop(name, None)

    def _step(self, how, context, generation, tokens, back):
        requests = [Request(name, count) for name, count in context.items()]
        requests += [Request(name, tokens, "generation") for name in generation]
        requests = [one for one in requests if self.model.committed(one.id) + one.tokens <= 128]
        for one in requests:
            if one.id not in self.cache.manager.sequences:
                self.cache.admit(one.id)
        if requests:
            self._run(requests, how, back)

    def _run(self, requests, how, back):
        try:
            step = self.cache.begin(requests)
        except OutOfPages:
            self._drop("preempt", self.cache.manager.sequences[0])
            return
        inputs = [self._inputs(step.tokens) for _ in layers(self.cache)]
        for layer, values in enumerate(inputs):
            out = self.cache.layer(layer, *values.values())
            for one in requests:
                at = step.rows[one.id]
                mine = {name: x[at] for name, x in values.items()}
                wanted = self.model.out(layer, one.id, mine, one.phase)
                torch.testing.assert_close(out[at].double(), wanted, rtol=2e-5, atol=2e-5)
        self._end(step, inputs, how, back)

    def _inputs(self, tokens):
        return {name: torch.randn(tokens, *shape, generator=self.random) for name, shape in self.shapes.items()}

    def _end(self, step, inputs, how, back):
        if how == "abort":
            self.cache.abort(step)
            return
        taken_back = {one.id: back.get(one.id, 0) for one in step.requests if one.phase == "generation"}
        accepted = {one.id: max(one.tokens - taken_back.get(one.id, 0), 0) for one in step.requests}
        self.cache.commit(step, accepted)
        for name, at in step.rows.items():
            self.model.commit(name, [{n: x[at] for n, x in values.items()} for values in inputs], accepted[name])


@pytest.mark.parametrize(("kind", "low", "high"), KINDS_AND_PAIRS)
@settings(max_examples=3, deadline=None)
@given(twin=settings_of_twins(), schedule=st.lists(events(), min_size=4, max_size=14))
def test_steps_read_what_is_retained_and_nothing_else(kind, low, high, twin, schedule):
    both = Both(kind, low, high, *twin)
    for event in schedule:
        both.play(event)


@pytest.mark.parametrize("wrong", [{"first": 5}, {"last": 6}, {"unit": "page"}, {"high": "fp8"}])
def test_a_row_read_from_the_wrong_pool_is_seen(wrong):
    """The test above can fail."""
    both = Both("gqa", "nvfp4", "bf16", 4, 3, 5, "token")
    both.play(("step", {"a": 11}, [], 1, {}))
    both.model.retain = replace(both.model.retain, **wrong)
    with pytest.raises(AssertionError):
        both.play(("step", {}, ["a"], 2, {}))
