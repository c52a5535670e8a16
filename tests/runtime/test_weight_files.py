"""Folders of safetensors: with an index and without, whole and damaged."""

import json

import pytest
import torch
from cache_harness import artifact
from safetensors.torch import save_file
from test_weights import refusal

import kvc
from kvc.runtime.random_weights import random_weights

INDEX = "model.safetensors.index.json"


def write_index(folder, content):
    (folder / INDEX).write_text(content if isinstance(content, str) else json.dumps({"weight_map": content}))


@pytest.mark.parametrize("indexed", [False, True])
def test_a_folder_of_safetensors(tmp_path, indexed):
    loaded = artifact("tiny-mla-fp32")
    weights = dict(random_weights(loaded.program.constants))
    first, *others = weights
    save_file({first: weights[first]}, tmp_path / "model-1.safetensors")
    save_file({name: weights[name] for name in others}, tmp_path / "model-2.safetensors")
    if indexed:
        write_index(tmp_path, {name: f"model-{1 if name == first else 2}.safetensors" for name in weights})
    folder = kvc.load_weights(tmp_path)
    assert set(folder) == set(weights) and len(folder) == len(weights)
    assert repr(folder) == f"<3 tensors in {tmp_path}>"
    made, expected = (loaded.allocate(num_slots=4, weights=x).constants for x in (folder, weights))
    assert all(torch.equal(made[name], tensor) for name, tensor in expected.items())


def test_tensors_of_no_concern_are_not_read(tmp_path):
    save_file({"a": torch.ones(3)}, tmp_path / "model-1.safetensors")
    write_index(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    folder = kvc.load_weights(tmp_path)
    assert torch.equal(folder["a"], torch.ones(3))
    assert "b" in folder and "c" not in folder
    assert f"{tmp_path / 'model-2.safetensors'} cannot be read" in refusal(folder.__getitem__, "b")


@pytest.mark.parametrize("content", ["", "3", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"x": 3}}', "[" * 10000])
def test_a_damaged_index_is_named(tmp_path, content):
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    write_index(tmp_path, content)
    found = refusal(kvc.load_weights, tmp_path)
    assert found.startswith(f"KVC514 {tmp_path / INDEX} is no index of safetensors files")


def test_an_index_reaches_no_other_folder(tmp_path):
    (tmp_path / "model").mkdir()
    save_file({"x": torch.ones(1)}, tmp_path / "secret.safetensors")
    write_index(tmp_path / "model", {"x": "../secret.safetensors"})
    assert refusal(kvc.load_weights(tmp_path / "model").__getitem__, "x").startswith("KVC514")


def test_an_index_that_names_the_wrong_file(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    write_index(tmp_path, {"b": "model.safetensors"})
    assert refusal(kvc.load_weights(tmp_path).__getitem__, "b").startswith("KVC514")


def test_a_tensor_of_two_files_is_refused(tmp_path):
    for name in ("consolidated", "model"):
        save_file({"a": torch.ones(1)}, tmp_path / f"{name}.safetensors")
    found = refusal(kvc.load_weights, tmp_path)
    assert found.startswith(f"KVC514 a is in consolidated.safetensors and in model.safetensors of {tmp_path}")


def test_folders_without_weights(tmp_path):
    assert "holds no safetensors files" in refusal(kvc.load_weights, tmp_path)
    assert "is no folder" in refusal(kvc.load_weights, tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_a_damaged_file_is_named(tmp_path, keep):
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(100)}, file)
    file.write_bytes(file.read_bytes()[:keep])
    assert refusal(kvc.load_weights, tmp_path).startswith(f"KVC514 {file} cannot be read")
