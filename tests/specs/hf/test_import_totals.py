"""Configs become specs that load and plan, with the bytes that their models are known for."""

from pathlib import Path

import pytest
from config_files import FILES, FOLDER, imported, plan_of, values

from kvc.specs import load_spec_text
from kvc.specs.hf.families import FAMILIES
from kvc.specs.hf.importing import ImportOptions, spec_from_config

TOTALS = {
    ("hub/deepseek-v2-lite", "bf16"): (31_104, 0),
    ("hub/deepseek-v3", "bf16"): (70_272, 0),
    ("hub/deepseek-v3", "fp8"): (35_136, 0),
    ("hub/deepseek-v3", "nvfp4"): (19_764, 0),
    ("hub/deepseek-v3.2", "fp8_ds_mla"): (48_068, 0),
    ("hub/qwen3-8b", "bf16"): (147_456, 0),
    ("hub/llama-3.1-8b", "bf16"): (131_072, 0),
    ("hub/smollm2-135m", "bf16"): (23_040, 0),
    ("hub/gpt-oss-20b", "bf16"): (24_576, 4_718_592),
    # 16 layers of 4 KV heads of 256; 48 of 48 states of 128x128 in fp32 and 10,240 channels of 3 inputs in bf16.
    ("spellings/qwen3.5-27b", "bf16"): (65_536, 48 * (48 * 128 * 128 * 4 + 10_240 * 3 * 2)),
    # 8 full layers of 8 KV heads of 256, 40 of windows of 1024: 17 pages of 64.
    ("spellings/gemma-3-12b", "bf16"): (8 * 8 * 512 * 2, 40 * 17 * 64 * 8 * 512 * 2),
    # 9 full layers of 4 KV heads of 192 + 128; 39 of windows of 128 + 1 with 8 heads: 3 pages.
    ("spellings/mimo-v2-flash", "bf16"): (9 * 4 * 320 * 2, 39 * 3 * 64 * 8 * 320 * 2),
    # 21 of 78 layers have an indexer of their own.
    ("spellings/glm-5.2", "bf16"): (78 * 1152 + 21 * 132, 0),
    ("spellings/glm-4.5-air", "bf16"): (46 * 8 * 256 * 2, 0),
    ("spellings/kimi-k2", "bf16"): (70_272, 0),
    # 7 latent layers; 20 of 32 states of 128x128 in fp32 and three convolutions of 4,096 channels.
    ("spellings/kimi-linear-48b", "bf16"): (7 * 1152, 20 * (32 * 128 * 128 * 4 + 3 * 4096 * 3 * 2)),
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_config_plans(path: Path) -> None:
    assert plan_of(path).bytes_per_token > 0 or plan_of(path).bytes_per_sequence > 0


@pytest.mark.parametrize(("name", "encoding"), TOTALS)
def test_bytes(name: str, encoding: str) -> None:
    plan = plan_of(FOLDER / f"{name}.json", encoding=encoding)
    assert (plan.bytes_per_token, plan.bytes_per_sequence) == TOTALS[name, encoding]


def test_every_family_has_a_config() -> None:
    types = {values(str(path.relative_to(FOLDER).with_suffix("")))["model_type"] for path in FILES}
    assert set(FAMILIES) - types <= {"qwen3_5_moe_text"}  # the same row as qwen3_5_text


def test_qwen3_next_has_36_states_whose_shapes_are_listed() -> None:
    spec = load_spec_text(spec_from_config(FOLDER / "hub/qwen3-next-80b-a3b.json"))
    plan = plan_of(FOLDER / "hub/qwen3-next-80b-a3b.json")
    states = [run for run in spec.runs if run.coverage.kind == "recurrent"]
    assert plan.bytes_per_token == 24_576
    assert sum(run.count for run in states) == 36
    assert {(state.name, state.shape, state.dtype) for run in states for state in run.shape.states} == {
        ("conv", (8192, 3), "bf16"),
        ("delta", (32, 128, 128), "fp32"),
    }


@pytest.mark.parametrize(
    ("library", "config", "encoding"),
    [
        ("llama-3.1-8b-bf16", "hub/llama-3.1-8b", "bf16"),
        ("qwen3-8b-fp8", "hub/qwen3-8b", "fp8"),
        ("deepseek-v2-lite", "hub/deepseek-v2-lite", "bf16"),
        ("deepseek-v3.2", "hub/deepseek-v3.2", "fp8_ds_mla"),
        ("gpt-oss-20b", "hub/gpt-oss-20b", "bf16"),
        ("qwen3-next", "hub/qwen3-next-80b-a3b", "bf16"),
        ("kimi-linear", "class_defaults/kimi_linear", "bf16"),
        ("gemma-3", "class_defaults/gemma3_text", "bf16"),
        ("glm-5", "class_defaults/glm_moe_dsa", "fp8_ds_mla"),
        ("deepseek-v4", "class_defaults/deepseek_v4", "fp8_ds_mla_v4"),
    ],
)
def test_the_library_says_the_same(library: str, config: str, encoding: str) -> None:
    """Two ways to the same layers: written by hand, and imported."""
    from kvc.specs import load_spec

    def described(spec: object) -> list[tuple[object, ...]]:
        runs = [(run.shape, run.coverage, run.encoding) for run in spec.runs for _ in range(run.count)]  # type: ignore[attr-defined]
        return runs

    path = FOLDER / f"{config}.json"
    assert described(load_spec(library)) == described(
        load_spec_text(spec_from_config(path, ImportOptions(encoding=encoding)))
    )


@pytest.mark.parametrize("encoding", ["fp32", "fp8", "nvfp4", "mixed_nvfp4_fp8", "mixed_fp8_bf16"])
def test_encodings_come_with_what_they_need(encoding: str, tmp_path: Path) -> None:
    assert load_spec_text(imported(tmp_path, values("hub/qwen3-8b"), encoding=encoding))


def test_options_reach_the_spec(tmp_path: Path) -> None:
    config = values("hub/llama-3.1-8b")
    spec = load_spec_text(imported(tmp_path, config, tensor=4, max_seq_len=1000, name="mine"))
    assert (spec.tensor_parallel, spec.target.max_seq_len, spec.name) == (4, 1000, "mine")
    assert spec.runs[0].shape.fields[0].heads == 2


def test_float16_runs_as_bf16_where_the_cache_would_take_bits_from_it(tmp_path: Path) -> None:
    config = {**values("hub/llama-3.1-8b"), "torch_dtype": "float16"}
    assert load_spec_text(imported(tmp_path, config)).dtype == "bf16"
    assert load_spec_text(imported(tmp_path, config, encoding="fp8")).dtype == "fp16"
