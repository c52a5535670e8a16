"""Draft layers, appended to the target's or on a cache of their own: no twin, and no token missed silently."""

import pytest
import torch
from cache_harness import layers
from mixed_caches import LAYERS, artifact, equal, new_cache, retained, rows_of, spec_text
from speculation_harness import DRAFT, Drafted, Engine, committed_rows, draft_spec

from kvc.diagnostics import KvcError
from kvc.plan import make_plan
from kvc.runtime.batch import Request
from kvc.runtime.random_weights import random_weights
from kvc.specs import load_spec, load_spec_text

MIXED = {kind: (kind, "nvfp4", retained(3, 5, "bf16")) for kind in LAYERS}
each_kind = pytest.mark.parametrize("kind", LAYERS)
TARGET, DRAFTS = range(2), (2, 3)
SCHEDULE = [
    [Drafted("a", 11, "context"), Drafted("b", 6, "context")],
    [Drafted("b", 4, "generation", 2), Drafted("a", 4, "generation", 4)],
    [Drafted("a", 3, "context"), Drafted("b", 4, "generation", 1)],
    [Drafted("a", 1, "generation"), Drafted("b", 1, "generation")],
]


def code_of(call, *args, **kwargs):
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    return caught.value.diagnostics[0].code


def played(cache, schedule=SCHEDULE):
    engine = Engine(cache)
    for batch in schedule:
        engine.synchronous(batch)
    return engine


def of_layers(engine, chosen):
    return [{name: [out[i] for i in chosen] for name, out in outs.items()} for outs in engine.outs]


@each_kind
def test_the_target_is_as_without_draft_layers(kind):
    """Its layers see their twins, whatever the draft layers after them stored."""
    drafting, alone = played(new_cache(draft_spec(*MIXED[kind]))), played(new_cache(spec_text(*MIXED[kind])))
    assert equal(of_layers(drafting, TARGET), alone.outs)
    for role in ("history", "twin"):
        for name in "ab":
            rows = committed_rows(drafting.cache, name, role)
            assert equal({layer: rows[layer] for layer in TARGET}, committed_rows(alone.cache, name, role))


@each_kind
def test_draft_layers_are_a_plain_cache_wherever_it_lies(kind):
    """Appended to a mixed target, and in a spec of their own: the same outputs and rows."""
    appended = played(new_cache(draft_spec(*MIXED[kind])))
    own = Engine(own_cache(kind), first=len(TARGET))
    for batch in SCHEDULE:
        own.synchronous(batch)
    assert equal(of_layers(appended, DRAFTS), own.outs)
    for name in "ab":
        rows = committed_rows(appended.cache, name, "history")
        assert equal([rows[2], rows[3]], list(committed_rows(own.cache, name, "history").values()))


def own_cache(kind):
    """The draft layers alone, with their weights in the larger model."""
    whole, alone = artifact(draft_spec(*MIXED[kind])), artifact(spec_text(kind, "bf16"))
    weights = random_weights(whole.program.constants, whole.program.dtype)
    names = {name.replace("layers.2.", "layers.0.").replace("layers.3.", "layers.1."): name for name in weights}
    own = {new: weights[old] for new, old in names.items() if new != old}
    return alone.allocate(num_slots=64, fill=0xFF, weights=own)


@each_kind
@pytest.mark.parametrize("pool", ["auto", "own"])
def test_no_draft_layer_has_a_twin_and_no_byte_of_one_is_theirs(kind, pool):
    """With pools of their own they leave all other memory alone; where slots are shared, the twins' slots."""
    cache = new_cache(draft_spec(*MIXED[kind], draft=DRAFT.replace("encoding", f"pool: {pool}, encoding")))
    engine = Engine(cache)
    engine.synchronous(SCHEDULE[0])
    twins = {buffer.pool for buffer in cache.plan.buffers if buffer.role == "twin"}
    assert {buffer.domain for buffer in cache.plan.buffers if buffer.pool in twins} == {"target"}
    assert [cache.plan.twin_of(layer) for layer in DRAFTS] == [None, None]
    step = cache.begin([Request("a", 2, "generation")])
    before = twin_bytes(cache, pool)
    for layer in DRAFTS:
        cache.layer(layer, *engine.inputs(layer, [Drafted("a", 2)]))
    assert equal(before, twin_bytes(cache, pool))
    for layer in TARGET:
        cache.layer(layer, *engine.inputs(layer, [Drafted("a", 2)]))
    assert not equal(before, twin_bytes(cache, pool))
    cache.commit(step)


def twin_bytes(cache, pool):
    """The pages of the twins, or all memory that they share with others."""
    if pool == "own":
        return [cache.pools.view(*cache.plan.twin_of(layer)).clone() for layer in TARGET]
    pages = [rows_of(cache, name, "twin", layer) for layer in TARGET for name in "ab"]
    return [{page: data.clone() for page, data in found.items()} for found in pages]


def run(cache, requests, chosen, accepted=None, **begin):
    """A step over some of the layers, on zeros."""
    step = cache.begin(requests, **begin)
    for layer in chosen:
        shapes = cache.program.graphs[cache.program.bindings[layer].signature, "context"].placeholders
        inputs = [node.meta["val"] for node in shapes if node.meta["role"] == "input"]
        cache.layer(layer, *(torch.zeros(step.tokens, *x.shape[1:], dtype=x.dtype) for x in inputs))
    cache.commit(step, accepted)


ONE = [Request("a", 1, "generation")]


def test_draft_layers_may_be_left_out_for_good():
    cache = new_cache(draft_spec("gqa", "bf16"))
    cache.admit("a")
    run(cache, [Request("a", 9)], range(4))
    drafts = cache.plan.layer_groups[-1].lifecycle
    assert (cache.manager.slot_tables(["a"])[drafts, 0] >= 0).sum() == 3
    run(cache, ONE, TARGET, domains=["target"])
    # Nothing will read their pages again, and they see no later token.
    assert (cache.manager.slot_tables(["a"])[drafts, 0] == -1).all()
    before = cache.manager.slot_tables(["a"])
    for domains in (None, ["draft", "target"]):
        assert code_of(cache.begin, ONE, domains=domains) == "KVC527"
    assert equal(torch.from_numpy(before), torch.from_numpy(cache.manager.slot_tables(["a"])))
    run(cache, ONE, TARGET, domains=["target"])
    # Other sequences are not concerned, and a sequence that is computed again starts afresh.
    cache.admit("b")
    run(cache, [Request("b", 3)], range(4))
    assert cache.preempt("a") == 11
    cache.admit("a")
    run(cache, [Request("a", 11)], range(4))
    run(cache, ONE, range(4))


def test_a_step_that_accepts_nothing_misses_nothing():
    cache = new_cache(draft_spec("gqa", "bf16"))
    cache.admit("a")
    run(cache, [Request("a", 9)], range(4))
    run(cache, ONE, (), {"a": 0}, domains=["target"])
    run(cache, ONE, TARGET, {"a": 0}, domains=["target"])
    run(cache, ONE, range(4))


def test_layers_that_a_step_names_run():
    cache = new_cache(draft_spec("gqa", "bf16"))
    cache.admit("a")
    with pytest.raises(KvcError, match="KVC505 layer 2 has not run"):
        run(cache, [Request("a", 2)], TARGET)
    cache.abort(cache._step)
    with pytest.raises(KvcError, match="KVC505 layer 2 is a draft layer, which this step leaves out"):
        run(cache, [Request("a", 2)], range(4), domains=["target"])
    cache.abort(cache._step)
    with pytest.raises(KvcError, match="KVC505 layer 1 has not run"):
        run(cache, [Request("a", 2)], [0], domains=["target"])


@pytest.mark.parametrize("domains", [[], ["draft"], ["target", "drafts"]])
def test_domains_that_cannot_be(domains):
    cache = new_cache(draft_spec("gqa", "bf16"))
    cache.admit("a")
    assert code_of(cache.begin, ONE, domains=domains) == "KVC504"
    assert code_of(cache.padding_step, 1, domains=domains) == "KVC504"


def test_a_captured_step_is_of_its_domains():
    cache = new_cache(draft_spec("gqa", "bf16"))
    for domains, bucket in ((None, (2, 3)), (["target", "draft"], (2, 3)), (["target"], (2, 3, "target"))):
        step = cache.padding_step(2, 3, domains=domains)
        assert step.bucket == bucket
        cache.abort(step)


def test_twins_of_layers_in_another_order():
    """Plain layers in between, other encodings, drafts behind: a layer's twin is its own."""
    plan = make_plan(load_spec("tiny-draft"))
    assert [plan.twin_of(layer) for layer in range(5)] == [(3, 0), None, (3, 1), None, None]
    assert {plan.pools[pool].lifecycle for pool, _ in filter(None, map(plan.twin_of, range(5)))} == {2}
    layer = LAYERS["gqa"].replace("repeat: 2", "repeat: 6").replace("1e4", "10000")
    text = spec_text("gqa", "nvfp4", retained(4, 8, "fp8"), layers=layer)
    text = text.replace("cache: {", "cache: {overrides: [{layers: '0,3', encoding: bf16, retain: null}], ")
    found = [make_plan(load_spec_text(text)).twin_of(layer) for layer in range(6)]
    assert [None if twin is None else twin[1] for twin in found] == [None, 0, 1, None, 2, 3]
    assert len({twin[0] for twin in found if twin}) == 1


def test_a_window_has_no_twin():
    window = LAYERS["gqa"].replace("repeat: 2", "repeat: 2, window: 8").replace("1e4", "10000")
    full = LAYERS["gqa"].replace("1e4", "10000")
    plan = make_plan(load_spec_text(spec_text("gqa", "nvfp4", retained(4, 8, "bf16"), layers=f"{window}, {full}")))
    assert [plan.twin_of(layer) is None for layer in range(4)] == [True, True, False, False]
    assert code_of(plan.twin_of, 4) == "KVC506"


def test_plain_programs_have_nothing_to_correct():
    program = artifact(spec_text("gqa", "bf16")).program
    assert [section.name for section in program.step["generation"]][-1] == "sequence_ids"
    assert "correct_lengths" not in str(program.prologues["generation"].fx)
    cache = new_cache(spec_text("gqa", "bf16"))
    assert cache.feedback == {} and list(layers(cache)) == [0, 1]
    cache.admit("a")
    step = cache.begin([Request("a", 1)])
    assert code_of(cache.advance, step) == "KVC528"
    cache.abort(step)
