"""Rope tables against the frequencies of transformers."""

import math
from types import SimpleNamespace

import pytest
import torch

from kvc.diagnostics import KvcError
from kvc.ops.rope_table import KINDS, inverse_frequencies, rope_table


def rope(kind, theta=10000.0, dim=64, **params):
    return SimpleNamespace(kind=kind, theta=theta, dim=dim, params=tuple(sorted(params.items())))


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 8192}
DEEPSEEK = {"factor": 40.0, "original_max_position": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}
CASES = [
    ("linear", 10000.0, 64, {"factor": 4.0}),
    ("llama3", 500000.0, 128, LLAMA3),
    ("llama3", 500000.0, 64, {**LLAMA3, "factor": 32.0}),
    ("yarn", 10000.0, 64, DEEPSEEK),
    ("yarn", 10000.0, 64, {**DEEPSEEK, "mscale": 0.707, "mscale_all_dim": 0.5, "beta_fast": 24.0, "beta_slow": 2.0}),
    ("yarn", 1000000.0, 128, {"factor": 4.0, "original_max_position": 32768}),
    ("yarn", 1000000.0, 128, {"factor": 4.0, "original_max_position": 32768, "attention_factor": 1.25}),
    ("yarn", 150000.0, 64, {"factor": 32.0, "original_max_position": 4096, "truncate": False}),
]


def theirs(kind, theta, dim, params):
    functions = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    from transformers import LlamaConfig

    names = {"original_max_position": "original_max_position_embeddings"}
    numbers = {names.get(name, name): value for name, value in params.items()}
    config = LlamaConfig(
        head_dim=dim,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": kind, "rope_theta": theta, **numbers},
    )
    return functions[kind](config, torch.device("cpu"))


@pytest.mark.parametrize(("kind", "theta", "dim", "params"), CASES)
def test_frequencies_of_transformers(kind, theta, dim, params):
    frequencies, factor = inverse_frequencies(rope(kind, theta, dim, **params))
    expected, expected_factor = theirs(kind, theta, dim, params)
    torch.testing.assert_close(frequencies, expected.double(), rtol=1e-6, atol=0)
    assert factor == pytest.approx(expected_factor, rel=1e-12)


@pytest.mark.parametrize(("kind", "theta", "dim", "params"), [("default", 10000.0, 64, {}), *CASES])
def test_table_is_cos_and_sin_in_float64_rounded_once(kind, theta, dim, params):
    table = rope_table(rope(kind, theta, dim, **params), 300)
    frequencies, factor = inverse_frequencies(rope(kind, theta, dim, **params))
    assert table.shape == (300, dim) and table.dtype == torch.float32
    for position, pair in ((0, 0), (1, 0), (17, 3), (299, dim // 2 - 1)):
        angle = position * frequencies[pair].item()
        expected = torch.tensor([math.cos(angle) * factor, math.sin(angle) * factor], dtype=torch.float64).float()
        assert torch.equal(table[position, [pair, pair + dim // 2]], expected)


def test_plain_frequencies():
    frequencies, factor = inverse_frequencies(rope("default", 10000.0, 8))
    assert frequencies.tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001], rel=1e-14) and factor == 1.0


def test_the_tables_of_a_spec_are_equal_every_time():
    assert torch.equal(rope_table(rope("yarn", **DEEPSEEK), 64), rope_table(rope("yarn", **DEEPSEEK), 64))


@pytest.mark.parametrize(
    ("kind", "words"), [("longrope", "one of default"), ("llama3", ""), ("linear", ""), ("yarn", "")]
)
def test_what_cannot_be_built(kind, words):
    with pytest.raises(KvcError, match="KVC556") as caught:
        rope_table(rope(kind), 4)
    assert words in caught.value.diagnostics[0].help


def test_every_kind_is_compared():
    assert set(KINDS) == {"default", *(case[0] for case in CASES)}


def test_a_table_of_several_blocks_is_the_same_as_row_by_row(monkeypatch):
    whole = rope_table(rope("default"), 100)
    monkeypatch.setattr("kvc.ops.rope_table._BLOCK", 33)
    assert torch.equal(rope_table(rope("default"), 100), whole)
