"""A program compiled for another model is refused, every differing field named with both values."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import LLAMA3_ROPE, MODELS, make_model, spec_values, write_spec
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from kvc.compiler import compile_spec
from kvc.diagnostics import KvcError
from kvc.integrations.transformers import attach
from kvc.integrations.transformers.families import FAMILIES
from kvc.integrations.transformers.matching import model_facts, program_facts
from kvc.runtime.loader import LoadedArtifact, load


def compiled(folder: Path, values: dict[str, Any]) -> LoadedArtifact:
    return LoadedArtifact(compile_spec(write_spec(folder, values)).artifact)


def messages(model: Any, artifact: LoadedArtifact) -> list[str]:
    with pytest.raises(KvcError) as caught:
        attach(model, artifact)
    assert {found.code for found in caught.value.diagnostics} == {"KVC604"}
    return [found.message.partition(": ")[2] for found in caught.value.diagnostics]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_own_spec_agree(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    artifact = compiled(tmp_path, spec_values(model.config))
    assert program_facts(artifact.program)
    for want, got in zip(
        program_facts(artifact.program), model_facts(model, FAMILIES[model.config.model_type]), strict=True
    ):
        assert want.keys() == got.keys()


def test_a_loaded_artifact_agrees_too(tmp_path: Path) -> None:
    """The facts survive the manifest: JSON has no tuples and no ints apart from floats."""
    model = make_model("llama-scaled-rope-tied")
    compile_spec(write_spec(tmp_path, spec_values(model.config))).write(tmp_path / "artifact")
    attach(model, load(tmp_path / "artifact")).detach()


def test_a_program_without_attention_is_refused(tmp_path: Path) -> None:
    """transformers brings no attention over staging."""
    model = make_model("llama-scaled-rope-tied")
    artifact = compiled(tmp_path, spec_values(model.config) | {"attention": {"kernel": "engine"}})
    assert messages(model, artifact) == ["attention.kernel of layers 0-3 is engine in the spec and kvc in the model"]


CHANGES = {
    "heads": ("heads", 6, "heads of layers 0-1 is 6 in the spec and 9 in the model"),
    "kv_heads": ("kv_heads", 9, "kv_heads of layers 0-1 is 9 in the spec and 3 in the model"),
    "repeat": ("repeat", 3, "number of layers is 3 in the spec and 2 in the model"),
    "v_head_dim": ("v_head_dim", 16, "v_head_dim of layers 0-1 is 16 in the spec and 8 in the model"),
    "softmax_scale": ("softmax_scale", 0.5, "softmax_scale of layers 0-1 is 0.5 in the spec and 0.35355339059"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_field_is_named(case: str, tmp_path: Path) -> None:
    field, value, expected = CHANGES[case]
    model = make_model("llama-odd-heads")
    values = spec_values(model.config)
    values["model"]["layers"][0][field] = value
    (message,) = messages(model, compiled(tmp_path, values))
    assert message.startswith(expected)


def test_several_fields_and_ropes(tmp_path: Path) -> None:
    model = make_model("llama-scaled-rope-tied")
    values = spec_values(model.config, dtype="bf16", encoding="bf16")
    values["model"]["layers"][0]["rope"] |= {"theta": 20000.0, "factor": 4.0, "layout": "interleaved"}
    found = messages(model, compiled(tmp_path, values))
    assert found == [
        "dtype is bf16 in the spec and fp32 in the model",
        "rope.layout of layers 0-3 is interleaved in the spec and half in the model",
        "rope.theta of layers 0-3 is 20000.0 in the spec and 10000.0 in the model",
        f"rope.factor of layers 0-3 is 4.0 in the spec and {LLAMA3_ROPE['factor']} in the model",
    ]


def test_no_rope_in_the_spec(tmp_path: Path) -> None:
    model = make_model("llama-odd-heads")
    values = spec_values(model.config)
    values["model"]["layers"][0]["rope"] = "none"
    assert messages(model, compiled(tmp_path, values))[0] == (
        "rope.kind of layers 0-1 is none in the spec and default in the model"
    )


def test_sliding_window_layers_are_named(tmp_path: Path) -> None:
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    windows = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}
    config = Qwen3Config(vocab_size=50, head_dim=16, num_hidden_layers=3, **shape, **windows)
    artifact = compiled(tmp_path, spec_values(config))
    assert messages(Qwen3ForCausalLM(config).eval(), artifact) == [
        "coverage of layer 2 is full in the spec and window 16 in the model"
    ]


def test_an_unknown_family_is_named(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, spec_values(make_model("qwen3").config))
    model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9)).eval()
    with pytest.raises(KvcError, match=r"KVC603 model family 'gpt2' is not supported") as caught:
        attach(model, artifact)
    assert "llama, qwen3" in caught.value.diagnostics[0].help


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bf16_model_runs_on_a_bf16_program(dtype: torch.dtype, tmp_path: Path) -> None:
    model = make_model("qwen3", dtype)
    short = {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]
    plain = model(torch.tensor([[5, 6, 7, 8]])).logits
    with attach(model, compiled(tmp_path, spec_values(model.config, "bf16", short))) as attached:
        runner = attached.runner()
        runner.admit("a")
        logits = runner.step({"a": [5, 6, 7, 8]}, all_logits=True)["a"]
    assert logits.dtype == dtype
    torch.testing.assert_close(logits, plain[0], atol=0.15 if dtype is torch.bfloat16 else 1e-4, rtol=0.0)
