"""`kvc run` on a tiny model folder."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_folders import CHAT, byte_tokenizer, tiny_config, write_model
from tiny_models import spec_values, write_spec
from transformers import AutoModelForCausalLM

import kvc
from kvc.diagnostics import KvcError
from kvc.integrations.transformers import parity

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return write_spec(tmp_path, spec_values(tiny_config()))


def expected_text(folder: Path, prompt: str, steps: int) -> str:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), byte_tokenizer()
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    made = model.generate(ids, max_new_tokens=steps, do_sample=False)
    return tokenizer.decode(made[0, ids.shape[1] :])


def test_text_is_the_models_own(run_kvc: Run, spec: Path, folder: Path) -> None:
    options = ("--model", str(folder), "--prompt", "Une clé", "--steps", "24")
    code, out, err = run_kvc("run", str(spec), *options, "--check")
    assert code == 0
    text, _, rest = out.partition("\n\nllama-fp32: ")
    assert text == expected_text(folder, "Une clé", 24)
    rates, check = rest.splitlines()
    assert rates.startswith("prefill 8 tokens at ")
    assert "decode 23 tokens at " in rates
    assert check == "check: all 24 tokens equal those of the model's own fp32 cache"
    assert err.endswith(f"compiling {spec}\nloading model in fp32\n")


def test_an_artifact_does_as_well(run_kvc: Run, spec: Path, folder: Path, tmp_path: Path) -> None:
    kvc.compile_spec(spec).write(tmp_path / "artifact")
    options = ("--model", str(folder), "--prompt", "abc", "--steps", "9")
    _, from_spec, _ = run_kvc("run", str(spec), *options)
    _, from_artifact, _ = run_kvc("run", str(tmp_path / "artifact"), *options)
    assert from_spec.partition("\n\n")[0] == from_artifact.partition("\n\n")[0]


def test_prompt_file_and_chat(run_kvc: Run, spec: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "chat", CHAT)
    (tmp_path / "prompt.txt").write_text("hello", "utf-8")
    code, out, _ = run_kvc(
        "run",
        str(spec),
        "--model",
        str(folder),
        "--prompt-file",
        str(tmp_path / "prompt.txt"),
        "--chat",
        "--steps",
        "3",
    )
    assert code == 0
    assert f"prefill {len('<user>hello')} tokens" in out


def test_one_step_has_no_decode_rate(run_kvc: Run, spec: Path, folder: Path) -> None:
    code, out, _ = run_kvc("run", str(spec), "--model", str(folder), "--steps", "1")
    assert code == 0
    assert "decode" not in out


def test_generation_stops_at_the_end_token(run_kvc: Run, spec: Path, folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    first = byte_tokenizer()(expected_text(folder, "abc", 1)).input_ids[0]
    symbol = byte_tokenizer().convert_ids_to_tokens(first)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": symbol}))
    _, out, _ = run_kvc("run", str(spec), "--model", str(folder), "--prompt", "abc", "--steps", "9")
    assert out.startswith("\n\nllama-fp32: prefill 3 tokens")


@pytest.mark.parametrize(("encoding", "code"), [("fp32", 1), ("bf16", 0)])
def test_check_reports_the_first_divergence(
    run_kvc: Run, folder: Path, tmp_path: Path, monkeypatch: Any, encoding: str, code: int
) -> None:
    """Only an fp32 cache promises the tokens of the model's own; the reference is bent from its fourth token on."""
    real = parity.own_continuation

    def bent(*arguments: Any) -> Any:
        for index, choice in enumerate(real(*arguments)):
            yield choice if index < 3 else parity.Choice(choice.token ^ 1, 0.125)

    monkeypatch.setattr(parity, "own_continuation", bent)
    spec = write_spec(tmp_path, spec_values(tiny_config(), encoding))
    got, out, _ = run_kvc("run", str(spec), "--model", str(folder), "--prompt", "abcd", "--steps", "5", "--check")
    assert got == code
    assert "at token 4 of 5" in out
    assert "the top-2 margin there is 0.1250 logits" in out


BAD: dict[str, tuple[str, tuple[str, ...]]] = {
    "no such folder": ("KVC602", ("--model", "nowhere")),
    "not a model folder": ("KVC602", ("--model", "{empty}")),
    "no weights": ("KVC602", ("--model", "{weightless}")),
    "broken config": ("KVC602", ("--model", "{broken}")),
    "wrong family": ("KVC603", ("--model", "{gpt2}")),
    "another model": ("KVC604", ("--model", "{model}", "--spec", "tiny-fp32")),
    "two prompts": ("KVC607", ("--model", "{model}", "--prompt", "a", "--prompt-file", "b")),
    "no prompt file": ("KVC607", ("--model", "{model}", "--prompt-file", "nowhere.txt")),
    "an empty prompt": ("KVC607", ("--model", "{model}", "--prompt", "")),
    "no chat template": ("KVC607", ("--model", "{model}", "--chat")),
    "too many steps": ("KVC608", ("--model", "{model}", "--steps", "5000")),
}


@pytest.mark.parametrize("case", BAD)
def test_findings(run_kvc: Run, spec: Path, folder: Path, tmp_path: Path, case: str) -> None:
    code, arguments = BAD[case]
    places = {name: tmp_path / name for name in ("empty", "weightless", "broken", "gpt2", "model")}
    for name in ("empty", "weightless", "broken", "gpt2"):
        places[name].mkdir()
    (places["weightless"] / "config.json").write_text((folder / "config.json").read_text())
    (places["broken"] / "config.json").write_text("{")
    (places["gpt2"] / "config.json").write_text('{"model_type": "gpt2"}')
    filled = [argument.format(**places) for argument in arguments]
    chosen = str(spec)
    if "--spec" in filled:
        at = filled.index("--spec")
        chosen, filled = filled[at + 1], filled[:at]
    exit_code, out, err = run_kvc("run", chosen, *filled)
    assert exit_code == 1
    assert code in err
    assert "= help: " in err
    assert "Traceback" not in out + err


def test_without_the_extra(run_kvc: Run, spec: Path, monkeypatch: Any) -> None:
    from kvc.integrations import transformers as integration

    monkeypatch.setattr(integration, "find_spec", lambda name: None if name == "gguf" else sys.modules[name].__spec__)
    exit_code, _, err = run_kvc("run", str(spec))
    assert exit_code == 1
    assert "KVC601 running a model needs gguf" in err
    assert "pip install 'kvc[hf]'" in err


def test_load_model_dtype(folder: Path) -> None:
    from kvc.integrations.transformers.loading import load_model

    loaded = load_model(folder, "bf16")
    assert loaded.model.dtype == torch.bfloat16
    assert not loaded.model.training


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("encoding", ["fp32", "fp8"])
def test_on_a_gpu(run_kvc: Run, folder: Path, tmp_path: Path, encoding: str) -> None:
    """A spec for a CPU is compiled for the GPU; the decode step is captured."""
    spec = write_spec(tmp_path, spec_values(tiny_config(), encoding))
    options = ("--model", str(folder), "--prompt", "Une clé", "--steps", "24", "--device", "cuda")
    code, out, err = run_kvc("run", str(spec), *options, "--check")
    assert code == 0, err
    assert "decode 23 tokens at " in out
    assert "not captured" not in out
    if encoding == "fp32":
        assert "check: all 24 tokens equal" in out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(run_kvc: Run, spec: Path) -> None:
    code, _, err = run_kvc("run", str(spec), "--device", "cuda")
    assert code == 1
    assert "KVC624 there is no CUDA device here" in err


def test_a_spec_is_compiled_for_the_device_and_an_artifact_is_not(spec: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from kvc.cli import devices

    monkeypatch.setattr(devices, "_arch", lambda: "sm_90")
    made = devices.artifact_on(devices.Device.CUDA, str(spec))
    assert made.program.device == "cuda"
    assert made.program.capture is not None
    target = made.artifact.spec["values"]["target"]
    assert (target["device"], target["arch"]) == ("cuda", "sm_90")
    folder = str(tmp_path / "artifact")
    kvc.compile_spec(spec).write(folder)
    with pytest.raises(KvcError, match=r"KVC625 .* was compiled for cpu, not for cuda sm_90"):
        devices.artifact_on(devices.Device.CUDA, folder)
    assert devices.artifact_on(devices.Device.CPU, folder).program.device == "cpu"
