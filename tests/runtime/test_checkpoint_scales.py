"""Scales of a checkpoint, from the spec to the operand: for every field, under every name, and none by default."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_weights import refusal

from kvc.capabilities.checkpoint_names import SCALES
from kvc.graphs.lowering.constants import Constants
from kvc.ops.codecs import scale_operand
from kvc.runtime.constants import make_constants
from kvc.runtime.weights import Checkpoint
from kvc.specs import load_spec_text

_LAYERS = {
    "gqa": "kind: gqa, repeat: 2, heads: 4, kv_heads: 2, head_dim: 16, rope: none",
    "mla": "kind: mla, repeat: 2, heads: 3, kv_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 16, "
    "v_head_dim: 16, rope: none",
}
_SPEC = """
kvc: 1
name: scales
model: {{dtype: bf16, max_position: 64, layers: [{{{layer}}}]}}
cache: {{encoding: {encoding}, tokens_per_page: 16, scales: {cache}}}
attention: {{context: fp8, scales: {attention}}}
target: {{device: cpu, max_sequences: 1, max_seq_len: 64, max_tokens: 64}}
"""
CHECKPOINT = "{source: checkpoint}"
# Kind and encoding -> placeholder of each scale, and the field that names it.
CASES = {
    ("gqa", "fp8"): {"k": "k", "v": "v", "context_q": "q", "context_k": "k", "context_v": "v"},
    ("mla", "fp8"): {"latent": "latent", "context_q": "q", "context_k": "k", "context_v": "v"},
    ("mla", "nvfp4_rope_fp8"): {"latent": "latent", "rope": "rope", "context_q": "q", "context_k": "k"},
}
FIELDS = [(kind, encoding, at, field) for (kind, encoding), row in CASES.items() for at, field in row.items()]


def scales_of(kind, encoding, cache=CHECKPOINT, attention=CHECKPOINT):
    """Constants that are scales, and what the last layer binds to them."""
    text = _SPEC.format(layer=_LAYERS[kind], encoding=encoding, cache=cache, attention=attention)
    spec, constants = load_spec_text(text, "some.yaml"), Constants(64, 1)
    bound = [constants.of_layer(run, offset) for run in spec.runs for offset in range(run.count)]
    made = {name: constant for name, constant in constants.made.items() if constant.kind == "scale"}
    return made, {key.removeprefix("scale."): name for key, name in bound[-1].items() if name in made}


def names_of(kind, field, layer=1):
    return [name.replace("{layer}", str(layer)) for name in SCALES[kind][field]]


def whole_checkpoint(kind):
    """Under every field's first name, a number of its own."""
    names = (names_of(kind, field, layer)[0] for layer in range(2) for field in SCALES[kind])
    return {name: torch.tensor(0.01 * (index + 1)) for index, name in enumerate(names)}


@pytest.mark.parametrize(("kind", "encoding", "at", "field"), FIELDS)
def test_every_field_takes_its_own(kind, encoding, at, field):
    constants, bound = scales_of(kind, encoding)
    weights = whole_checkpoint(kind)
    operand = make_constants(constants, "cpu", Checkpoint(weights, torch.bfloat16))[bound[at]]
    codec = constants[bound[at]].params["codec"]
    assert torch.equal(operand, scale_operand(codec, float(weights[names_of(kind, field)[0]])))


@pytest.mark.parametrize(("kind", "encoding", "at", "field"), FIELDS)
def test_a_missing_scale_is_an_error(kind, encoding, at, field):
    """Of each field, and never 1."""
    constants, bound = scales_of(kind, encoding)
    assert constants[bound[at]].params["tensors"] == names_of(kind, field)
    weights = whole_checkpoint(kind)
    del weights[names_of(kind, field)[0]]
    found = refusal(make_constants, constants, "cpu", Checkpoint(weights, torch.bfloat16))
    assert found.startswith(f"KVC512 the weights have no {' or '.join(names_of(kind, field))}")


NAMES = [(kind, field, name) for kind in _LAYERS for field in SCALES[kind] for name in SCALES[kind][field]]


@pytest.mark.parametrize(("kind", "field", "name"), NAMES)
def test_every_documented_name_is_read(kind, field, name):
    encoding = "nvfp4_rope_fp8" if field == "rope" else "fp8"
    constants, bound = scales_of(kind, encoding)
    weights = {k: v for k, v in whole_checkpoint(kind).items() if k not in names_of(kind, field)}
    weights[name.replace("{layer}", "1")] = torch.tensor([0.625])
    made = make_constants(constants, "cpu", Checkpoint(weights, torch.bfloat16))
    assert made[bound[field if field in bound else f"context_{field}"]][0] == 0.625


def test_the_row_of_latent_attention_and_its_expanded_keys_have_different_names():
    """`k_scale` of a checkpoint is the row's; taking it for the keys that are expanded from it would be silent."""
    assert not {name for field in "qkv" for name in SCALES["mla"][field]} & set(SCALES["mla"]["latent"])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.tensor(0.0), "is 0.0, expected one finite number above 0"),
        (torch.tensor(-1.0), "is -1.0, expected one finite number above 0"),
        (torch.tensor(float("inf")), "is inf, expected one finite number above 0"),
        (torch.tensor(float("nan")), "is nan, expected one finite number above 0"),
        (torch.tensor(True), "is True, expected one finite number above 0"),
        (torch.tensor(1), "is 1, expected one finite number above 0"),
        (torch.tensor(1 + 1j), "is (1+1j), expected one finite number above 0"),
        (torch.ones(2), "is a tensor of shape [2], expected one finite number above 0"),
        (torch.ones(0), "is a tensor of shape [0], expected one finite number above 0"),
        (torch.ones(1, device="meta"), "is a tensor without data"),
        (0.5, "is a float, expected a tensor"),
        (torch.tensor(1e-40), "cannot be used: scale "),
        (torch.tensor(1e-300, dtype=torch.float64), "cannot be used: scale "),
        (torch.tensor(1e38), "cannot be used: scale "),
    ],
)
def test_what_is_no_scale_is_named(value, words):
    found = refusal(Checkpoint({"s": value}, torch.float32).scale, "fp8", ["s"])
    assert found.startswith(f"KVC513 s of the checkpoint {words}")


def test_several_names_must_agree():
    read = lambda weights: Checkpoint(weights, torch.float32).scale("fp8", ["new", "old"])  # noqa: E731
    half, quarter = torch.tensor(0.5), torch.tensor([0.25])
    assert read({"old": half})[0] == read({"old": half, "new": half})[0] == 0.5
    found = refusal(read, {"old": half, "new": quarter})
    assert found.startswith("KVC513 a scale has two values in the checkpoint: new is 0.25, old is 0.5 | remove one")


def test_names_of_the_spec_are_the_only_ones():
    own = "{source: checkpoint, names: {k: 'mine.{layer}'}}"
    constants, bound = scales_of("gqa", "fp8", cache=own)
    assert constants[bound["k"]].params["tensors"] == ["mine.1"]
    assert constants[bound["v"]].params["tensors"] == names_of("gqa", "v")
    assert constants[bound["context_k"]].params["tensors"] == names_of("gqa", "k")


@given(st.lists(st.floats(2.0**-60, 2.0**60, width=32), min_size=5, max_size=5), st.booleans())
def test_numbers_come_back_as_they_were_written(numbers, one_a_layer):
    """From the text of a spec to the operands of its last layer."""
    text = [f"[1.0, {number!r}]" if one_a_layer else repr(number) for number in numbers]
    cache = f"{{source: values, values: {{k: {text[0]}, v: {text[1]}}}}}"
    attention = f"{{source: values, values: {{q: {text[2]}, k: {text[3]}, v: {text[4]}}}}}"
    constants, bound = scales_of("gqa", "fp8", cache, attention)
    made = make_constants(constants, "cpu", Checkpoint(None, torch.float32))
    found = [made[bound[at]][0].item() for at in CASES["gqa", "fp8"]]
    assert found == numbers
    assert len(constants) == len({*numbers, *([1.0] if one_a_layer else [])})
