"""Generation steps of a cache captured per bucket: replay equals eager, and the contract holds for kvc's ops too."""

from dataclasses import replace

import pytest
import torch
from cache_harness import SPECS, decode, layers, new_cache, prefill, rows, run, same

from kvc.diagnostics import KvcError
from kvc.runtime.batch import Request
from kvc.runtime.capture import capture_inputs, replay_bucket
from kvc.runtime.graph_runner import GraphRunner

NAMES = ("a", "b", "c")


class Engine:
    """The host side of a captured step: static bucket-sized q, k, v a layer, filled before each replay."""

    def __init__(self, cache, bucket):
        self.cache, self.runner, self.bucket = cache, GraphRunner(), bucket
        self.inputs = {
            f"{place}.{layer}": x.new_zeros((bucket, *x.shape[1:]))
            for layer in layers(cache)
            for place, x in enumerate(rows(cache, "a", layer, 0, 1))
        }

    def forward(self, step):
        self.cache.prologue(step)
        return [self.cache.layer(i, *self._inputs_of(i)) for i in layers(self.cache)]

    def _inputs_of(self, layer):
        return [x for name, x in self.inputs.items() if name.endswith(f".{layer}")]

    def capture(self, static=None, copied=None):
        step = self.cache.padding_step(self.bucket, prologue=False)
        try:
            planned = capture_inputs(self.cache, step.bucket)
            static = planned.static if static is None else static
            copied = {**planned.copied, **self.inputs} if copied is None else copied
            self.runner.capture(step.bucket, lambda: self.forward(step), static, copied)
        finally:
            self.cache.abort(step)

    def step(self, *names):
        starts = {name: self.cache.manager.committed(name) for name in names}
        step = self.cache.begin([Request(name, 1, "generation") for name in names], prologue=False)
        for layer in layers(self.cache):
            parts = [rows(self.cache, name, layer, starts[name], 1) for name in names]
            for held, x in zip(self._inputs_of(layer), zip(*parts, strict=True), strict=True):
                held[: len(names)] = torch.cat(x)
        outs = self.runner.replay(replay_bucket(self.cache, step), {"step": self.cache.step_buffer, **self.inputs})
        self.cache.commit(step)
        return torch.stack([out.clone() for out in outs])


@pytest.mark.parametrize("spec", SPECS)
def test_replayed_steps_equal_eager_ones(spec):
    captured, eager = (new_cache(spec, buckets=(4,)) for _ in range(2))
    engine = Engine(captured, 4)
    engine.capture()
    assert all((tensor == 0).all() for tensor in captured.pools.tensors.values())
    prompts = [Request(name, 14 + i) for i, name in enumerate(NAMES)]
    run(captured, prompts)
    run(eager, prompts)
    # Pages are crossed at different steps; a sequence leaves in the middle; a prompt runs between replays.
    for names in [NAMES] * 4 + [("a", "c")] * 2:
        outs = engine.step(*names)
        expected = run(eager, *decode(*names))
        for i, name in enumerate(names):
            assert same(outs[:, i], expected[name][:, 0])
        assert (outs[:, len(names) :] == 0).all()
        for cache in (captured, eager):
            run(cache, *prefill("b", 3))
    for key, tensor in captured.pools.tensors.items():
        assert same(tensor, eager.pools.tensors[key])


def refusal(**registered):
    cache = new_cache("tiny-bf16", buckets=(2,))
    engine = Engine(cache, 2)
    with pytest.raises(KvcError) as caught:
        engine.capture(**{name: make(cache, engine) for name, make in registered.items()})
    return caught.value.diagnostics[0]


def test_an_unregistered_pool_is_named():
    found = refusal(static=lambda cache, _: cache.constants)
    assert found.code == "KVC520"
    assert "kvc::" in found.message and "'pool'" in found.message


def test_unregistered_constants_are_named():
    found = refusal(static=lambda cache, _: {k: v for k, v in cache.static_tensors.items() if k.startswith("pool")})
    assert found.code == "KVC520"
    assert "'table'" in found.message


def test_an_unregistered_step_buffer_is_named():
    found = refusal(copied=lambda _, engine: engine.inputs)
    assert found.code == "KVC520"
    assert "int32" in found.message


# The plan of the program is what is registered


def with_plan(cache, **changes):
    """The cache with another capture plan; ``regions``: callable -> input -> rule, None takes the input away."""
    plan = cache.program.capture
    changed = changes.pop("regions", {})
    regions = [
        replace(
            region,
            inputs={k: v for k, v in (region.inputs | changed.get(region.callable, {})).items() if v is not None},
        )
        for region in plan.regions
    ]
    cache.program = replace(cache.program, capture=replace(plan, regions=tuple(regions), **changes))
    return cache


def capture_refused(cache, bucket=2):
    with pytest.raises(KvcError) as caught:
        Engine(cache, bucket).capture()
    return caught.value.diagnostics[0]


@pytest.mark.parametrize("spec", SPECS)
def test_the_plan_covers_the_cache(spec):
    cache = new_cache(spec, buckets=(2,))
    planned = capture_inputs(cache, (2, 1))
    of_context = {
        constant
        for binding in cache.program.bindings
        for name, constant in binding.constants.items()
        if name.startswith("scale.context_")
    }
    assert planned.static.keys() == cache.static_tensors.keys() - of_context
    assert planned.copied == {"step": cache.step_buffer}


@pytest.mark.parametrize(
    ("region", "input", "argument"),
    [("gqa1.generation", "pool.history", "'pool'"), ("gqa0.generation", "scale.k", "'k_scale'")],
)
def test_what_the_plan_leaves_out_is_not_registered(region, input, argument):
    cache = with_plan(new_cache("tiny-mixed", buckets=(2,)), regions={region: {input: None}})
    found = capture_refused(cache)
    assert (found.code, argument in found.message) == ("KVC520", True)


def test_a_step_buffer_that_the_plan_leaves_out():
    cache = new_cache("tiny-bf16", buckets=(2,))
    sections = dict.fromkeys(cache.program.capture.regions[0].inputs)
    found = capture_refused(with_plan(cache, regions={"prologue.generation": sections}))
    assert (found.code, "int32" in found.message) == ("KVC520", True)


@pytest.mark.parametrize("rule", [("weight.kv_b", "static"), ("pool.history", "copied"), ("pool.history", "shared")])
def test_a_rule_that_the_cache_cannot_follow(rule):
    cache = with_plan(new_cache("tiny-bf16", buckets=(2,)), regions={"gqa0.generation": dict([rule])})
    found = capture_refused(cache)
    assert found.code == "KVC526"
    assert "gqa0.generation: the capture plan has {} as {}".format(*rule) in found.message


def test_a_program_without_a_plan():
    cache = new_cache("tiny-bf16", buckets=(2,))
    cache.program = replace(cache.program, capture=None)
    assert capture_refused(cache).message == "program tiny-bf16 has no capture plan"


def test_a_bucket_that_is_not_planned():
    found = capture_refused(with_plan(new_cache("tiny-bf16", buckets=(2, 3)), buckets=(1, 2)), bucket=3)
    assert (found.code, found.help) == ("KVC526", "planned: 1, 2")


def test_steps_that_have_no_key():
    cache = new_cache("tiny-bf16", buckets=(1, 2))
    run(cache, *prefill("a", 3), *prefill("b", 3), *prefill("c", 3))
    new = Request("d", 2)
    cache.admit("d")
    token = [Request(name, 1, "generation") for name in NAMES]
    for requests, problem in (([new], "context"), ([new, token[0]], "context"), (token, "3 sequences")):
        step = cache.begin(requests)
        with pytest.raises(KvcError, match=f"KVC526.*{problem}"):
            replay_bucket(cache, step)
        cache.abort(step)
    step = cache.begin([Request("a", 3, "generation")])
    assert replay_bucket(cache, step) == (1, 3)


def test_a_failed_capture_leaves_the_cache_usable():
    cache = new_cache("tiny-bf16", buckets=(2,))
    engine = Engine(cache, 2)
    with pytest.raises(KvcError):
        engine.capture(copied=engine.inputs)
    run(cache, *prefill("a", 3), *decode("a"))
    engine.capture()


def test_a_padding_step_is_all_zeros():
    cache = new_cache("tiny-bf16", fill=0xFF)
    step = cache.padding_step(2, tokens=3)
    assert (step.tokens, step.padded_tokens, step.bucket) == (0, 6, (2, 3))
    q, k, v = (torch.full((6, *x.shape[1:]), torch.nan, dtype=x.dtype) for x in rows(cache, "a", 0, 0, 1))
    assert (cache.layer(0, q, k, v) == 0).all()
    cache.abort(step)
    assert all((tensor == 0xFF).all() for tensor in cache.pools.tensors.values())
