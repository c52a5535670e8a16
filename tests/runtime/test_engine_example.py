"""examples/engine.py: whatever is batched, chunked or preempted, every text is what it is alone."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cache_harness import new_cache

import kvc

EXAMPLE = Path(__file__).parents[2] / "examples" / "engine.py"
PROMPTS = {"a": list(range(30)), "b": [7], "c": list(range(20, 3, -1))}


@pytest.fixture(scope="module")
def engine():
    spec = importlib.util.spec_from_file_location("engine_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(engine):
    program = new_cache("tiny-fp32").program
    shape = program.signatures["gqa0"]["shape"]
    return engine.ToyModel(len(program.bindings), shape["heads"], shape["kv_heads"], shape["head_dim"])


def preemptions(cache):
    """Lists the preemptions of a cache from now on."""
    seen, preempt = [], cache.preempt
    cache.preempt = lambda name: seen.append(name) or preempt(name)
    return seen


def test_texts_do_not_depend_on_the_batch_or_on_memory(engine, model):
    roomy, tight = new_cache("tiny-fp32", num_slots=24), new_cache("tiny-fp32", num_slots=4)
    few, many = preemptions(roomy), preemptions(tight)
    together, squeezed = (engine.generate(cache, model, PROMPTS, 12) for cache in (roomy, tight))
    assert not few and many
    for name, prompt in PROMPTS.items():
        alone = engine.generate(new_cache("tiny-fp32"), model, {name: prompt}, 12)
        assert len(alone[name]) == len(prompt) + 12
        assert together[name] == squeezed[name] == alone[name]
    assert roomy.manager.free_slots == (24,) and tight.manager.free_slots == (4,)


def test_a_text_that_never_fits_is_refused(engine, model):
    with pytest.raises(kvc.OutOfPages) as caught:
        engine.generate(new_cache("tiny-fp32", num_slots=2), model, {"a": list(range(40))}, 1)
    assert not caught.value.solvable


def test_the_example_runs_as_a_script(checkout_path: str):
    path = os.environ | {"PYTHONPATH": checkout_path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, env=path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line[:2] for line in done.stdout.splitlines()] == ["a:", "b:", "c:", "d:"]
