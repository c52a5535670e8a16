"""Plays what an engine does on a compiled cache and on a model of it in plain tensors, which must agree."""

from functools import lru_cache
from itertools import count

import torch
from cache_harness import layers
from hypothesis import strategies as st

from kvc.runtime.batch import Request
from kvc.runtime.out_of_pages import OutOfPages


def numbers(page):
    """Numbers of tokens around a page's edges, and beyond any sequence here."""
    return st.sampled_from(sorted({0, 1, max(page - 1, 0), page, page + 1, 2 * page, 7, 200}))


@st.composite
def retained_edges(draw):
    page = draw(st.sampled_from([1, 2, 4]))
    first, last = draw(st.tuples(numbers(page), numbers(page)).filter(any))
    return page, first, last, draw(st.sampled_from(["token", "page"]))


@st.composite
def events(draw):
    """What an engine does: steps, and now and then a sequence that goes."""
    names = st.sampled_from("abc")
    kind = draw(st.sampled_from(["step"] * 3 + ["advance"] * 3 + ["preempt", "release", "abort", "reuse"]))
    if kind in ("preempt", "release"):
        return kind, draw(names)
    if kind == "reuse":
        return kind, draw(names), draw(st.integers(0, 9))
    context = draw(st.dictionaries(names, st.integers(1, 11), max_size=2))
    generation = [name for name in draw(st.lists(names, max_size=3, unique=True)) if name not in context]
    tokens, back = draw(st.integers(1, 4)), draw(st.dictionaries(names, st.integers(0, 4)))
    return kind, context, generation, tokens, back


class Both:
    """A cache and its model, which must agree after every step; a token's id says what its rows are."""

    def __init__(self, cache, make_model):
        self.cache = cache
        self.in_flight = None
        bound = [cache.bound_tensors(layer) for layer in layers(cache)]
        self.model = make_model([(one.get("weight.w_uk"), one.get("weight.w_uv")) for one in bound])
        self.shapes = [_shapes(cache, binding.signature) for binding in cache.program.bindings]
        self.ids = count()
        self.tokens, self.prompts, self.known, self.reused = {}, {}, [], 0

    def play(self, event):
        """One event; sequences that are not there begin."""
        how, *rest = event
        if how in ("preempt", "release", "reuse"):
            self._settle()
        {"preempt": self._drop, "release": self._drop, "reuse": self._reuse}.get(how, self._step)(how, *rest)

    def _drop(self, how, name):
        if name in self.cache.manager.sequences:
            getattr(self.cache, how)(name)
            self.model.rows.pop(name, None)

    def _reuse(self, how, name, which):
        """Start a sequence over with the tokens that another one has, or had."""
        if self.known:
            self._drop("release", name)
            self._admit(name, self.known[which % len(self.known)])

    def _admit(self, name, prompt):
        self.cache.admit(name)
        found = self.cache.reuse(name, prompt).tokens
        self.tokens[name], self.prompts[name] = list(prompt[:found]), list(prompt[found:])
        if found:
            self.model.commit(name, self._inputs(prompt[:found]), found)
            self.reused += found

    def _step(self, how, context, generation, tokens, back):
        requests = [Request(name, number) for name, number in context.items()]
        requests += [Request(name, tokens, "generation") for name in generation]
        requests = [one for one in requests if self.model.committed(one.id) + one.tokens <= 128]
        for one in requests:
            if one.id not in self.cache.manager.sequences:
                self._admit(one.id, [next(self.ids) for _ in range(one.tokens)])
        if requests:
            self._run(requests, how, back)

    def _run(self, requests, how, back):
        try:
            step = self.cache.begin(requests)
        except OutOfPages:
            self._settle()
            self._drop("preempt", self.cache.manager.sequences[0])
            return
        new = {one.id: self._next(one.id, one.tokens) for one in requests}
        inputs = self._inputs([token for one in requests for token in new[one.id]])
        for layer, values in enumerate(inputs):
            out = self.cache.layer(layer, *values.values())
            for one in requests:
                at = step.rows[one.id]
                mine = {name: x[at] for name, x in values.items()}
                wanted = self.wanted(layer, one, at, mine)
                torch.testing.assert_close(out[at].double(), wanted, rtol=2e-5, atol=2e-5)
        self._end(step, new, how, back)

    def wanted(self, layer, request, rows, inputs):
        """What a layer's output must be; ``rows`` are the request's places in the step."""
        return self.model.out(layer, request.id, inputs, request.phase)

    def _next(self, name, number):
        """A sequence's next tokens: of its prompt, then new ones."""
        prompt = self.prompts[name][:number]
        return prompt + [next(self.ids) for _ in range(number - len(prompt))]

    def _inputs(self, tokens):
        """Layer -> input -> its rows."""
        return [
            {
                name: torch.stack([_row(token, layer, name, shape) for token in tokens])
                for name, shape in self.shapes[layer].items()
            }
            for layer in layers(self.cache)
        ]

    def _end(self, step, new, how, back):
        self._settle()
        if how == "abort":
            self.cache.abort(step)
            return
        taken_back = {one.id: back.get(one.id, 0) for one in step.requests if one.phase == "generation"}
        accepted = {one.id: max(one.tokens - taken_back.get(one.id, 0), 0) for one in step.requests}
        kept = {name: tokens[: accepted[name]] for name, tokens in new.items()}
        for name, tokens in kept.items():
            self.cache.record_tokens(name, tokens[len(self.prompts[name]) :])
        self._finish(step, accepted, overlapped=how == "advance" and bool(self.cache.feedback))
        for name, tokens in kept.items():
            self.model.commit(name, self._inputs(new[name]), accepted[name])
            self.tokens[name] += tokens
            self.prompts[name] = self.prompts[name][len(tokens) :]
            self.known = [*self.known, list(self.tokens[name])][-6:]

    def _finish(self, step, accepted, overlapped):
        """The host knows what was accepted at once, or only after the next step has begun."""
        if not overlapped:
            self.cache.commit(step, accepted)
            return
        self.cache.accepted.fill_(2**31 - 1)
        self.cache.accepted[: len(accepted)] = torch.tensor(list(accepted.values()), dtype=torch.int32)
        self.cache.advance(step)
        drafted = [one.id for one in step.requests if one.phase == "generation"]
        self.in_flight = step, {name: accepted[name] for name in drafted}

    def _settle(self):
        if self.in_flight:
            self.cache.settle(*self.in_flight)
        self.in_flight = None


@lru_cache(maxsize=1 << 14)
def _row(token, layer, name, shape):
    seed = token * 100 + layer * 10 + len(name)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _shapes(cache, signature):
    """Input -> the shape of a token's part of it."""
    graph = cache.program.graphs[signature, "context"]
    inputs = [node for node in graph.placeholders if node.meta["role"] == "input"]
    return {str(node.target): node.meta["val"].shape[1:] for node in inputs}
