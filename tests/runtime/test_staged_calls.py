"""`Cache.stage` and `Cache.write_back`: what they refuse, padded steps, captured ones, and artifacts."""

import pytest
import torch
from cache_harness import rows
from mixed_caches import artifact, equal, new_cache, play, pool_bytes, retained, spec_text
from staged_engine import ENGINE, Engine, pair

import kvc
from kvc.diagnostics import KvcError
from kvc.runtime.batch import Request
from kvc.runtime.capture import capture_inputs, replay_bucket
from kvc.runtime.graph_runner import GraphRunner

TWIN = retained(2, 5, "bf16")
MIXED = [Request("a", 2), Request("b", 1, "generation")]


def staging_of(sequences, length, dtype=torch.float32):
    """Staging of the gqa layers."""
    return [torch.full((sequences, length, 2, dim), 0.5, dtype=dtype) for dim in (16, 32)]


def opened(requests=MIXED, committed=5, twin=TWIN):
    """A cache of two staged layers whose sequences have some tokens, and an open step."""
    cache = new_cache(spec_text("gqa", "nvfp4", twin, more=ENGINE))
    for name in "ab":
        cache.admit(name)
    step = cache.begin([Request(name, committed) for name in "ab"])
    for layer in range(2):
        cache.write_back(layer, *staging_of(2, committed))
    cache.commit(step)
    return cache, cache.begin(requests)


BAD = {
    "fields": (lambda x: x[:1], "staging of 1 fields, expected 2: k, v"),
    "rank": (lambda x: [y[0] for y in x], "staging of k is torch.float32"),
    "no axes": (lambda x: [y[0, 0, 0, 0] for y in x], "staging of k is torch.float32 [] on cpu"),
    "sequences": (lambda x: [y[:1] for y in x], "[sequences, L, 2, 16] on cpu: 2 sequences"),
    "too many sequences": (lambda x: [torch.cat((y, y)) for y in x], "expected torch.float32 [sequences, L, 2, 16]"),
    "too short": (lambda x: [y[:, :6] for y in x], "2 sequences, L >= 7, as many of both in every field"),
    "unequal rows": (lambda x: [x[0], x[1][:, :8]], "staging of v is torch.float32 [2, 8, 2, 32]"),
    "dim": (lambda x: [x[0], x[1][..., :16]], "staging of v is torch.float32 [2, 9, 2, 16]"),
    "heads": (lambda x: [x[0][:, :, :1], x[1]], "staging of k is torch.float32 [2, 9, 1, 16]"),
    "dtype": (lambda x: [y.bfloat16() for y in x], "staging of k is torch.bfloat16"),
    "device": (lambda x: [y.to("meta") for y in x], "on meta"),
}


@pytest.mark.parametrize("call", ["write_back", "stage"])
@pytest.mark.parametrize("what", BAD)
def test_staging_that_does_not_fit_is_refused_before_anything_is_written(what, call):
    change, words = BAD[what]
    cache, _ = opened()
    cache.write_back(0, *staging_of(2, 9))
    before, staging = [x.clone() for x in pool_bytes(cache)], change(staging_of(2, 9))
    with pytest.raises(KvcError) as caught:
        getattr(cache, call)(0, *staging)
    assert caught.value.diagnostics[0].code == "KVC506"
    assert words in str(caught.value)
    assert equal(pool_bytes(cache), before)
    assert all(x.is_meta or torch.equal(x, torch.full_like(x, 0.5)) for x in staging)


def test_which_kernel_a_layer_is_called_for():
    cache, _ = opened()
    own = new_cache(spec_text("gqa", "nvfp4", TWIN))
    own.admit("a")
    step = own.begin([Request("a", 2)])
    inputs = [torch.zeros(3, heads, dim) for heads, dim in ((4, 16), (2, 16), (2, 32))]
    with pytest.raises(KvcError, match="layer of layer 0, whose attention an engine computes"):
        cache.layer(0, *inputs)
    for call in (own.stage, own.write_back):
        with pytest.raises(KvcError, match="of layer 1, whose attention kvc computes"):
            call(1, *staging_of(1, 2))
    own.abort(step)
    with pytest.raises(KvcError, match="KVC505"):
        own.stage(1, *staging_of(1, 2))


def test_generation_stages_after_the_rows_are_written_back():
    cache, step = opened()
    with pytest.raises(KvcError, match="stage of layer 0 before write_back") as caught:
        cache.stage(0, *staging_of(2, 9))
    assert caught.value.diagnostics[0].code == "KVC505"
    cache.abort(step)
    step = cache.begin([Request("a", 2)])
    cache.stage(0, *staging_of(1, 9))  # context reads no row of the step
    cache.abort(step)


def test_a_layer_that_is_not_written_back_is_not_committed():
    cache, step = opened()
    cache.write_back(0, *staging_of(2, 9))
    with pytest.raises(KvcError, match="layer 1 has not run") as caught:
        cache.commit(step)
    assert caught.value.diagnostics[0].code == "KVC505"


def test_rows_that_share_memory_are_refused_before_anything_is_written():
    cache, _ = opened([Request("a", 2), Request("b", 2)])
    before = [x.clone() for x in pool_bytes(cache)]
    shared = [x[:1].expand(x.shape) for x in staging_of(2, 9)]
    with pytest.raises(KvcError, match="is expanded"):
        cache.stage(0, *shared)
    assert equal(pool_bytes(cache), before) and all((x == 0.5).all() for x in shared)


def test_padding_needs_no_staging_and_writes_none():
    """Three sequences in a bucket of four: with or without the fourth's staging, which stays as it is."""
    schedule = [([(name, 4, "context") for name in "abc"], {}), ([(name, 1, "generation") for name in "abc"], {})]
    found = []
    for padded in (False, True):
        own, cache = pair("gqa", "nvfp4", TWIN)
        engine = Engine(cache, own, "gqa", padded)
        found.append(([list(out.values()) for out in play(cache, schedule, engine.step)], pool_bytes(cache)))
        assert all(x[3:].isnan().all() for x in engine.staging)
    assert equal(found[0], found[1])


@pytest.mark.parametrize("kind", ["gqa", "mla"])
def test_a_captured_step_has_the_bits_of_a_plain_one(kind):
    """Staging, write-back and the engine's attention in one captured callable; lengths change between replays."""
    own, cache = pair(kind, "nvfp4", TWIN)
    eager_own, eager = pair(kind, "nvfp4", TWIN)
    context = [([(name, tokens, "context") for name, tokens in (("a", 7), ("b", 3))], {})]
    for one, other in ((own, cache), (eager_own, eager)):
        play(other, context, Engine(other, one, kind).step)
    inputs = [x.new_zeros((2, *x.shape[1:])) for x in rows(own, "a", 0, 0, 2)]
    fields = [x.new_full((2, 16, *x.shape[1:]), torch.nan) for x in (inputs[1:] if kind == "gqa" else inputs[2:])]

    def run():
        rotated = Engine(cache, own, kind).rotated(0, inputs, cache.positions(padded=True))[1]
        place = torch.arange(2), cache.positions(padded=True).long()
        for x, values in zip(fields, rotated, strict=True):
            x.index_put_(place, values)
        for layer in range(2):
            cache.write_back(layer, *fields)
            cache.stage(layer, *fields)
        return [x.clone() for x in fields]

    runner, bucket = GraphRunner(), (2, 1)
    step = cache.padding_step(2, prologue=False)
    registered = capture_inputs(cache, bucket)
    static = {
        **registered.static,
        **dict(zip(("k", "v"), fields, strict=True)),
        **{f"own.{name}": x for name, x in own.static_tensors.items()},
    }
    copied = {**registered.copied, **{f"x{i}": x for i, x in enumerate(inputs)}}

    def captured():
        cache.prologue(step)
        return run()

    runner.capture(bucket, captured, static, copied)
    cache.abort(step)
    for x in fields:
        x.fill_(torch.nan)
    requests = [Request("a", 1, "generation"), Request("b", 1, "generation")]
    for at in (7, 8, 9):
        values = [torch.cat(x) for x in zip(rows(own, "a", 0, at, 1), rows(own, "b", 0, at - 4, 1), strict=True)]
        step = cache.begin(requests, prologue=False)
        out = runner.replay(replay_bucket(cache, step), registered.copied | {f"x{i}": x for i, x in enumerate(values)})
        cache.commit(step)
        expected = eager_step(eager, eager_own, kind, requests, values)
        for got, wanted, length in zip(out, expected, [at + 1, at + 1], strict=True):
            assert torch.equal(got[0, :length], wanted[0, :length])
            assert torch.equal(got[1, : length - 4], wanted[1, : length - 4])
    assert equal(pool_bytes(cache), pool_bytes(eager))


def eager_step(cache, own, kind, requests, inputs):
    """The same step without a capture, on staging of NaN."""
    step = cache.begin(requests)
    own_rows = Engine(cache, own, kind).rotated(0, inputs, cache.positions())[1]
    fields = [x.new_full((2, 16, *x.shape[1:]), torch.nan) for x in own_rows]
    for x, values in zip(fields, own_rows, strict=True):
        x[torch.arange(2), cache.positions().long()] = values
    for layer in range(2):
        cache.write_back(layer, *fields)
        cache.stage(layer, *fields)
    cache.commit(step)
    return fields


def test_a_written_artifact_stages_as_a_fresh_one(tmp_path):
    fresh = artifact(spec_text("mla", "nvfp4", TWIN, more=ENGINE))
    folder = kvc.compile_spec("tiny-staged").write(tmp_path / "staged")
    loaded = kvc.load(folder)
    assert set(loaded.accepts) == {
        f"{name}.{part}.{phase}"
        for name in ("gqa0", "mla1")
        for part in ("stage", "write_back")
        for phase in ("context", "generation")
    }
    assert loaded.accepts["mla1.stage.context"] == {"latent": ["f32"], "rope": ["f32"]}
    assert {name: row["kernel"] for name, row in loaded.program.signatures.items()} == {
        "gqa0": "engine",
        "mla1": "engine",
    }
    assert not any(constant.kind in ("weight", "rope_table") for constant in fresh.program.constants.values())
    cache = loaded.allocate(num_slots=8)
    cache.admit(0)
    step = cache.begin([Request(0, 3)])
    for layer in range(4):
        fields = [(3, 16), (3, 32)] if layer < 2 else [(1, 32), (1, 16)]
        staging = [torch.ones(1, 3, *size) for size in fields]
        cache.write_back(layer, *staging)
        cache.stage(layer, *staging)
        assert all((x == 1).all() for x in staging)
    cache.commit(step)
