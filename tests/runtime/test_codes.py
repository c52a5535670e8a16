"""Inputs given as e4m3 codes: what the manifest accepts runs like the activation path, bit for bit."""

import pytest
import torch
from cache_harness import layers, new_cache, prefill, rows, run

from kvc.diagnostics import KvcError
from kvc.ops import codecs
from kvc.runtime.batch import Request

SPECS = ("tiny-fp8", "tiny-mla-fp8")
SCALED_BY = {"v": "scale.v", "latent": "scale.latent", "q_nope": "scale.context_q"}


def accepted(cache, layer, phases):
    """Names of the inputs that every phase takes as codes."""
    signature = cache.program.bindings[layer].signature
    graphs = [cache.program.graphs[signature, phase] for phase in phases]
    names = [{str(p.target) for p in graph.placeholders if p.meta.get("accepts")} for graph in graphs]
    return set.intersection(*names)


def as_codes(cache, layer, names, values):
    """The inputs with those of ``names`` encoded under the layer's scale, as a caller who holds fp8 has them."""
    graph = cache.program.graphs[cache.program.bindings[layer].signature, "context"]
    order = [str(node.target) for node in graph.placeholders if node.meta["role"] == "input"]
    return [
        codecs.fp8.encode(x, cache.bound_tensors(layer)[SCALED_BY[name]])[0].view(torch.float8_e4m3fn)
        if name in names
        else x
        for name, x in zip(order, values, strict=True)
    ]


def outputs(cache, requests, give_codes):
    """One step of requests of one sequence each; codes where every phase of the step takes them."""
    start = {request.id: cache.manager.committed(request.id) for request in requests}
    step = cache.begin(requests)
    phases = {part.phase for part in step.parts}
    outs = []
    for layer in layers(cache):
        parts = [rows(cache, r.id, layer, start[r.id], r.tokens) for r in requests]
        values = [torch.cat(x) for x in zip(*parts, strict=True)]
        names = accepted(cache, layer, phases) if give_codes else ()
        outs.append(cache.layer(layer, *as_codes(cache, layer, names, values)))
    cache.commit(step)
    return outs


STEPS = {
    "context": [Request("a", 9, "context"), Request("b", 20, "context")],
    "chunk": [Request("a", 7, "context"), Request("b", 3, "context")],
    "generation": [Request("a", 1, "generation"), Request("b", 1, "generation")],
    "several tokens": [Request("a", 2, "generation"), Request("b", 2, "generation")],
}


@pytest.mark.parametrize("spec", SPECS)
def test_codes_equal_the_activation_path(spec):
    """Context from nothing, a chunk on cached rows, generation: equal outputs, and equal pools at the end."""
    caches = [new_cache(spec), new_cache(spec)]
    used = set()
    for cache in caches:
        cache.admit("a")
        cache.admit("b")
    for requests in STEPS.values():
        used |= accepted(caches[0], 0, {requests[0].phase})
        plain, codes = (outputs(cache, requests, give) for cache, give in zip(caches, (False, True), strict=True))
        assert all(torch.equal(a, b) for a, b in zip(plain, codes, strict=True))
    for a, b in zip(*(cache.pools.tensors.values() for cache in caches), strict=True):
        assert torch.equal(a, b)
    assert used == {"tiny-fp8": {"v"}, "tiny-mla-fp8": {"q_nope", "latent"}}[spec]


def test_codes_are_not_copied(monkeypatch):
    """The graph gets a view of the caller's memory."""
    cache = new_cache("tiny-mla-fp8")
    run(cache, *prefill("a", 5))
    step = cache.begin([Request("a", 1, "generation")])
    (signature,) = {binding.signature for binding in cache.program.bindings}
    runner = cache._graphs[signature, "generation"]
    seen = {}
    monkeypatch.setattr(runner, "run", lambda values, go=runner.run: seen.update(values) or go(values))
    values = as_codes(cache, 0, {"latent"}, rows(cache, "a", 0, 5, 1))
    assert step.padded_tokens == step.tokens  # padding copies what it pads, whatever it is
    cache.layer(0, *values)
    assert seen["input.latent"].data_ptr() == values[2].data_ptr()
    assert seen["input.latent"].dtype == torch.uint8
    cache.abort(step)


REFUSED = {
    "not in this phase": ("context", 2, r"latent has torch.float8_e4m3fn .* expected torch.float32 \["),
    "not this input": ("generation", 0, r"q_nope has torch.float8_e4m3fn .* expected torch.float32 \["),
    "another dtype where codes are taken": (
        "generation",
        2,
        r"latent has torch.float8_e5m2 .* expected torch.float32 or torch.float8_e4m3fn \[",
    ),
    "bytes that nobody calls codes": (
        "generation",
        2,
        r"latent has torch.uint8 .* expected torch.float32 or torch.float8_e4m3fn \[",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_names_what_is_taken(case):
    phase, index, message = REFUSED[case]
    dtypes = {"another dtype where codes are taken": torch.float8_e5m2, "bytes that nobody calls codes": torch.uint8}
    cache = new_cache("tiny-mla-fp8")
    run(cache, *prefill("a", 5))
    before = [tensor.clone() for tensor in cache.pools.tensors.values()]
    step = cache.begin([Request("a", 1, phase)])
    values = rows(cache, "a", 0, 5, 1)
    values[index] = values[index].to(dtypes.get(case, torch.float8_e4m3fn))
    with pytest.raises(KvcError, match="KVC506 layer 0: " + message):
        cache.layer(0, *values)
    cache.abort(step)
    assert all(torch.equal(a, b) for a, b in zip(before, cache.pools.tensors.values(), strict=True))


def test_a_step_of_both_phases_takes_what_both_take():
    """V of gqa is stored as codes, and needed as values by the context phase's attention."""
    cache = new_cache("tiny-fp8")
    run(cache, *prefill("a", 5))
    cache.admit("b")
    step = cache.begin([Request("b", 3, "context"), Request("a", 1, "generation")])
    values = [torch.cat(x) for x in zip(rows(cache, "b", 0, 0, 3), rows(cache, "a", 0, 5, 1), strict=True)]
    with pytest.raises(KvcError, match=r"v has torch.float8_e4m3fn .* expected torch\.\w+ \["):
        cache.layer(0, *as_codes(cache, 0, {"v"}, values))
    cache.abort(step)
