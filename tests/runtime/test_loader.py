"""From an artifact on disk to a cache of the size asked for, without pydantic."""

import subprocess
import sys

import pytest
import torch
from cache_harness import artifact, decode, new_cache, prefill, run, same

import kvc
from kvc.diagnostics import KvcError
from kvc.plan.capacity import bytes_for_tokens
from kvc.runtime.batch import Request


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return kvc.compile_spec("tiny-mixed").write(tmp_path_factory.mktemp("artifacts") / "tiny-mixed")


def test_a_loaded_artifact_runs_like_the_compiled_one(folder):
    loaded, fresh = kvc.load(folder).allocate(num_slots=24), new_cache("tiny-mixed")
    steps = [[Request("a", 19), Request("b", 4)], *decode("a", "b", steps=2)]
    left, right = run(loaded, *steps), run(fresh, *steps)
    assert same([left["a"], left["b"]], [right["a"], right["b"]])
    for key, tensor in fresh.pools.tensors.items():
        assert same(tensor, loaded.pools.tensors[key])


def test_what_a_loaded_artifact_says(folder):
    loaded = kvc.load(folder)
    assert loaded.plan == artifact("tiny-mixed").plan
    assert loaded.manifest["plan"]["name"] == loaded.program.name == "tiny-mixed"
    assert loaded.accepts["gqa0.generation"] == {"q": ["f32"], "k": ["f32"], "v": ["f32", "e4m3"]}
    assert loaded.accepts["gqa0.context"]["v"] == ["f32"]  # attention needs the values of own rows
    assert (loaded.limits.max_sequences, loaded.limits.max_seq_len, loaded.limits.max_tokens) == (4, 256, 256)


def test_what_a_session_shows(folder):
    loaded = kvc.load(folder)
    cache = loaded.allocate(num_slots=2)
    cache.admit("a")
    assert repr(loaded.artifact) == "<artifact of tiny-mixed: 4 layers, activations fp32, for cpu>"
    assert repr(cache) == "<cache of tiny-mixed on cpu: 1 admitted, 2 of 2 slots free>"
    with pytest.raises(kvc.OutOfPages, match=r"help: .*allocate more slots"):
        cache.begin([Request("a", 33)])


def test_tokens_are_what_can_be_stored(folder):
    for tokens in (1, 16, 17, 100):
        cache = kvc.load(folder).allocate(tokens=tokens)
        run_lengths(cache, tokens)
        assert not any(cache.manager.free_slots)


def run_lengths(cache, tokens):
    cache.admit("a")
    cache.commit(cache.begin([Request("a", tokens)]))


def test_memory_is_filled_and_not_exceeded(folder):
    loaded = kvc.load(folder)
    for nbytes in (100_000, 1_000_000):
        cache = loaded.allocate(memory=nbytes)
        slot = max(group.slot_bytes for group in loaded.plan.pool_groups)
        assert nbytes - slot * len(loaded.plan.pool_groups) < cache.pools.nbytes <= nbytes
    assert loaded.allocate(tokens=40).pools.nbytes == bytes_for_tokens(loaded.plan, 40)


def test_the_plan_gives_the_size_if_memory_is_known():
    compiled = kvc.compile_spec("tiny-bf16", device_bytes=2 << 30)
    slots = kvc.LoadedArtifact(compiled.artifact)._slots({})
    assert slots == [group.num_slots for group in compiled.artifact.plan.pool_groups]


@pytest.mark.parametrize(
    "size",
    [
        {},
        {"num_slots": 0},
        {"num_slots": -1},
        {"num_slots": [4, 4, 4]},
        {"num_slots": []},
        {"num_slots": True},
        {"tokens": 0},
        {"tokens": 1.5},
        {"tokens": "64"},
        {"memory": 10},
        {"memory": "64MiB"},
        {"tokens": 10, "num_slots": 4},
        {"num_slots": 1 << 45},
        {"num_slots": 4, "fill": 256},
    ],
)
def test_sizes_that_are_refused(size, folder):
    with pytest.raises(KvcError) as caught:
        kvc.load(folder).allocate(**size)
    assert [found.code for found in caught.value.diagnostics] == ["KVC508"]


def test_a_cache_is_where_the_spec_wants_it(monkeypatch):
    loaded = kvc.LoadedArtifact(kvc.compile_spec("llama-3.1-8b-fp8").artifact)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KvcError, match="KVC508 there is no CUDA device here"):
        loaded.allocate(num_slots=2)
    assert loaded.allocate(num_slots=2, device="cpu").device.type == "cpu"


def test_write_rows_fit_into_int32(folder):
    loaded = kvc.load(folder)
    with pytest.raises(KvcError, match=r"over 2\*\*31 rows"):
        loaded.allocate(num_slots=1 << 29)


def test_pools_are_aligned_and_filled(folder):
    cache = kvc.load(folder).allocate(num_slots=3, fill=0x5A)
    for tensor in cache.pools.tensors.values():
        assert tensor.data_ptr() % 16 == 0
        assert (tensor == 0x5A).all()
    for binding in cache.program.bindings:
        view = cache.pools.view(*binding.pools["history"])
        pool = cache.plan.pools[binding.pools["history"][0]]
        base = cache.pools.of_pool(binding.pools["history"][0])
        assert view.data_ptr() - base.data_ptr() == binding.pools["history"][1] * pool.page_bytes
        assert view.stride() == (pool.page_bytes, 1)


def test_layers_never_share_a_byte(folder):
    """Each layer's page of each slot, by the page ids that copy_page_tables makes, covers the pools exactly once."""
    cache = kvc.load(folder).allocate(num_slots=5)
    for binding in cache.program.bindings:
        pool = cache.plan.pools[binding.pools["history"][0]]
        cache.pools.view(*binding.pools["history"])[torch.arange(5) * pool.pages_per_slot] += 1
    for tensor in cache.pools.tensors.values():
        assert (tensor == 1).all()


def test_a_rope_table_of_another_machine_is_reported(folder):
    loaded = kvc.load(folder)
    for constant in loaded.program.constants.values():
        if constant.kind == "rope_table":
            constant.params["sha256"] = "0" * 64
    with pytest.warns(UserWarning, match="KVC509"):
        loaded.allocate(num_slots=2)


def test_loading_and_running_imports_no_pydantic(folder):
    script = f"""
import sys, torch, kvc
cache = kvc.load({str(folder)!r}).allocate(num_slots=4)
cache.admit("a")
step = cache.begin([kvc.Request("a", 3)])
cache.commit(step)
sys.exit(any(name.split(".")[0] in ("pydantic", "typer", "transformers") for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_lifecycle_of_a_cache(folder):
    cache = kvc.load(folder).allocate(num_slots=4)
    run(cache, *prefill("a", 5))
    assert cache.preempt("a") == 5
    assert cache.admit("a") == 5
    cache.release("a")
    assert cache.manager.sequences == ()
