"""The same model in every spelling of its fields: old and new, nested and flat, null and left out."""

from pathlib import Path
from typing import Any

import pytest
from config_files import FOLDER, imported, saved, values

from kvc.specs import load_spec_text
from kvc.specs.hf.importing import spec_from_config
from kvc.specs.resolved import ResolvedSpec

LLAMA = values("hub/llama-3.1-8b")


def spec(folder: Path, config: dict[str, Any]) -> ResolvedSpec:
    return load_spec_text(imported(folder, config))


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


ROPE = LLAMA["rope_scaling"]
SAME = {
    "new name, base inside": {"rope_parameters": {**ROPE, "rope_theta": 500000.0}},
    "new name, base beside": {"rope_parameters": ROPE, "rope_theta": 500000.0},
    "old type": {"rope_scaling": {**without(ROPE, "rope_type"), "type": "llama3"}, "rope_theta": 500000},
    "both, one null": {"rope_scaling": None, "rope_parameters": {**ROPE, "rope_theta": 500000.0}},
    "dtype": {"rope_scaling": ROPE, "rope_theta": 500000, "torch_dtype": None, "dtype": "bfloat16"},
    "head_dim": {"rope_scaling": ROPE, "rope_theta": 500000, "head_dim": 128, "sliding_window": None},
    "unknown null": {"rope_scaling": ROPE, "rope_theta": 500000, "some_new_field": None},
    "quantized": {"rope_scaling": ROPE, "rope_theta": 500000, "quantization_config": {"quant_method": "awq"}},
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_spellings_of_llama(change: dict[str, Any], tmp_path: Path) -> None:
    rest = without(LLAMA, "rope_scaling", "rope_theta")
    assert spec(tmp_path, {**rest, **change}).runs == spec(tmp_path, LLAMA).runs


def test_a_nested_text_model_is_the_model(tmp_path: Path) -> None:
    text = without(values("class_defaults/gemma3_text"), "dtype")
    alone = spec(tmp_path, {**text, "dtype": "float32"})
    nested = spec(
        tmp_path, {"model_type": "gemma3", "dtype": "float32", "text_config": text, "vision_config": {"x": 1}}
    )
    unnamed = spec(tmp_path, {"model_type": "gemma3", "dtype": "float32", "text_config": without(text, "model_type")})
    assert alone.values["model"] == nested.values["model"] == unnamed.values["model"]
    assert alone.dtype == "fp32"


def test_architectures_name_the_family_where_model_type_does_not(tmp_path: Path) -> None:
    assert spec(tmp_path, without(LLAMA, "model_type")).runs == spec(tmp_path, LLAMA).runs


def test_class_defaults_are_used_where_released_configs_rely_on_them() -> None:
    text = spec_from_config(FOLDER / "spellings/gemma-3-12b.json")
    assert "head_dim (256, the default of its class)" in " ".join(text.replace("#", "").split())


def test_gemma3_scales_the_rotary_embedding_of_full_layers_alone(tmp_path: Path) -> None:
    runs = load_spec_text(spec_from_config(FOLDER / "spellings/gemma-3-12b.json")).runs
    kinds = {(run.coverage.kind, run.shape.rope.kind, run.shape.rope.theta) for run in runs}
    assert kinds == {("window", "default", 10_000.0), ("full", "linear", 1_000_000.0)}


def test_deepseek_v4_scales_compressed_layers_alone() -> None:
    runs = load_spec_text(spec_from_config(FOLDER / "spellings/deepseek-v4-flash.json")).runs
    kinds = {(run.coverage.kind, run.shape.rope.kind, run.shape.rope.theta) for run in runs}
    assert kinds == {("window", "default", 10_000.0), ("compressed", "yarn", 160_000.0)}
    assert dict(next(run for run in runs if run.shape.rope.kind == "yarn").shape.rope.params)["attention_factor"] == 1.0


def test_a_base_for_all_layers_is_not_that_of_compressed_ones(tmp_path: Path) -> None:
    config = without(values("spellings/deepseek-v4-flash"), "rope_scaling", "rope_theta")
    flat = {**config, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000}}
    assert {run.shape.rope.theta for run in spec(tmp_path, flat).runs} == {10_000.0, 160_000.0}


def test_kimi_linear_in_both_spellings(tmp_path: Path) -> None:
    old = values("spellings/kimi-linear-48b")
    linear = old["linear_attn_config"]
    new = without(old, "linear_attn_config") | {
        "linear_head_dim": linear["head_dim"],
        "linear_num_heads": linear["num_heads"],
        "linear_conv_kernel_dim": linear["short_conv_kernel_size"],
        "layer_types": [
            "full_attention" if index in linear["full_attn_layers"] else "linear_attention" for index in range(1, 28)
        ],
    }
    assert spec(tmp_path, old).values["model"] == spec(tmp_path, new).values["model"]


def test_shared_indexers_by_schedule_pattern_and_list(tmp_path: Path) -> None:
    listed = values("spellings/glm-5.2")
    scheduled = without(listed, "indexer_types")
    letters = "".join(kind[0].upper() for kind in listed["indexer_types"])
    pattern = {**scheduled, "index_topk_pattern": letters}
    assert spec(tmp_path, listed).runs == spec(tmp_path, scheduled).runs
    assert spec(tmp_path, listed).values["model"] == spec(tmp_path, pattern).values["model"]


def test_the_rope_layout_of_indexers(tmp_path: Path) -> None:
    """Of the family's code, or as the config says; a shared indexer rotates nothing."""
    glm = values("spellings/glm-5.2")
    found = {(run.shape.indexer.shared, run.shape.indexer.rope_layout) for run in spec(tmp_path, glm).runs}
    assert found == {(True, None), (False, "interleaved")}
    halves = spec(tmp_path, {**glm, "indexer_rope_interleave": False}).runs
    assert {run.shape.indexer.rope_layout for run in halves} == {None, "half"}
    (v32,) = spec(tmp_path, values("hub/deepseek-v3.2")).runs
    assert (v32.shape.rope.layout, v32.shape.indexer.rope_layout) == ("interleaved", "half")


def test_a_window_longer_than_any_sequence_is_none(tmp_path: Path) -> None:
    config = {**values("class_defaults/phi3"), "sliding_window": 262_144}
    text = imported(tmp_path, config)
    assert {run.coverage.kind for run in load_spec_text(text).runs} == {"full"}
    assert "sliding_window 262144 is no limit" in text


def test_a_folder_stands_for_its_config(tmp_path: Path) -> None:
    path = saved(tmp_path, LLAMA)
    assert spec_from_config(tmp_path) == spec_from_config(path)


def test_draft_layers_are_mentioned_with_what_to_write() -> None:
    text = spec_from_config(FOLDER / "hub/deepseek-v3.json")
    assert "# draft: {kind: mtp, layers: 1, max_draft_tokens: 1, encoding: bf16}" in text
    with_draft = text + "draft: {kind: mtp, layers: 1, max_draft_tokens: 1, encoding: bf16}\n"
    assert load_spec_text(with_draft).num_layers == 62


def test_what_a_quantized_checkpoint_says_of_its_cache(tmp_path: Path) -> None:
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}
    assert "kv_cache_scheme" in imported(tmp_path, {**LLAMA, "quantization_config": scheme})
