"""`kvc run` and `kvc sweep` on small random models with sparse attention."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_folders import byte_tokenizer
from test_sparse_models import mixed_values
from tiny_models import SPARSE_MODELS, spec_values, write_spec
from tiny_sparse_models import SPARSE, LowestFirst
from transformers import AutoModelForCausalLM

Run = Callable[..., tuple[int, str, str]]
PROMPT = "The history of counting"


@pytest.fixture(scope="module", params=SPARSE_MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a byte for a token, on disk."""
    kind, config, settings = SPARSE[request.param]
    made = tmp_path_factory.mktemp("sparse")
    torch.manual_seed(5)
    values = {"vocab_size": 256, "intermediate_size": 48, "initializer_range": 0.2, "max_position_embeddings": 512}
    kind(config(**values, bos_token_id=None, eos_token_id=None, **settings)).eval().save_pretrained(made / "model")
    byte_tokenizer().save_pretrained(made / "model")
    return made


def model_of(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder / "model").eval()


def test_run_on_the_fp32_cache_is_the_models_own(run_kvc: Run, folder: Path) -> None:
    spec = write_spec(folder, spec_values(model_of(folder).config))
    with LowestFirst():
        code, out, _ = run_kvc(
            "run", str(spec), "--model", str(folder / "model"), "--prompt", PROMPT, "--steps", "16", "--check"
        )
    assert code == 0 and out.endswith("check: all 16 tokens equal those of the model's own fp32 cache\n")


def test_run_on_a_mixed_cache(run_kvc: Run, folder: Path) -> None:
    spec = write_spec(folder, mixed_values(model_of(folder), 4, 16))
    code, out, _ = run_kvc("run", str(spec), "--model", str(folder / "model"), "--prompt", PROMPT, "--steps", "12")
    assert code == 0 and "decode 11 tokens at " in out


def test_sweep(run_kvc: Run, folder: Path, tmp_path: Path) -> None:
    """Encodings of sparse layers are measured; retaining tokens in fp8 brings nvfp4 nearer to the fp32 cache."""
    spec = write_spec(folder, spec_values(model_of(folder).config))
    (tmp_path / "text.txt").write_text(
        f"{PROMPT} begins with tallies on bone, and goes on with beads on strings.", "utf-8"
    )
    options = ["--text", str(tmp_path / "text.txt"), "--tokens", "40", "--first", "4", "--last", "20"]
    options += ["--retain", "fp8", "--encodings", "fp32,nvfp4,nvfp4_rope_fp8"]
    code, _, err = run_kvc(
        "sweep", str(spec), "--model", str(folder / "model"), "--out", str(tmp_path / "out"), *options
    )
    assert code == 0, err
    with (tmp_path / "out" / "sweep.csv").open(newline="") as stream:
        found = {(row["encoding"], row["retain"]): float(row["mean_kl"]) for row in csv.DictReader(stream)}
    assert len(found) == 5 and {name for name, _ in found} == {"fp32", "nvfp4", "nvfp4_rope_fp8"}
    assert found["fp32", ""] < 1e-8 and found["nvfp4", "fp8"] < found["nvfp4", ""]
