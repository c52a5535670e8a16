"""Every wrong config gets a finding that says what is wrong, where, and what to do."""

import json
from pathlib import Path
from typing import Any

import pytest
from config_files import findings, imported, saved, values

from kvc.diagnostics import KvcError
from kvc.specs import load_spec_text
from kvc.specs.hf.importing import ImportOptions, spec_from_config

LLAMA = values("hub/llama-3.1-8b")
QWEN3 = values("hub/qwen3-8b")
OSS = values("hub/gpt-oss-20b")
GEMMA3 = values("class_defaults/gemma3_text")
V4 = values("spellings/deepseek-v4-flash")
KIMI = values("spellings/kimi-linear-48b")
MIMO = values("spellings/mimo-v2-flash")
FALCON = values("class_defaults/falcon_h1")
NOPE = "\x00"  # takes a field away


def changed(config: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**config, **change}.items() if value != NOPE}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str, str]] = {
    # what: (config, change, code, part of the message, part of the help)
    "no head_dim and no rule": (QWEN3, {"head_dim": NOPE}, "KVC155", "`head_dim` is missing", "add `head_dim`"),
    "null head_dim": (QWEN3, {"head_dim": None}, "KVC155", "`head_dim` is missing", ""),
    "no layers": (LLAMA, {"num_hidden_layers": NOPE}, "KVC155", "`num_hidden_layers` is missing", ""),
    "head_dim that does not divide": (LLAMA, {"hidden_size": 4095}, "KVC157", "does not divide into 32 heads", ""),
    "layer_types too short": (OSS, {"layer_types": ["full_attention"]}, "KVC157", "1 entries for 24 layers", ""),
    "a layer type of another family": (
        OSS,
        {"layer_types": ["mamba"] * 24},
        "KVC157",
        "`mamba`, which this family does not have",
        "`full_attention`",
    ),
    "sliding without a size": (OSS, {"sliding_window": None}, "KVC157", "`sliding_window`, the size", "add"),
    "a switch without a size": (QWEN3, {"use_sliding_window": True}, "KVC157", "there are sliding layers", ""),
    "sliding layers and the switch off": (
        QWEN3,
        {"layer_types": ["sliding_attention"] * 36, "sliding_window": 4096},
        "KVC157",
        "`use_sliding_window` is not true",
        "",
    ),
    "two orders of windows": (
        GEMMA3,
        {"_sliding_window_pattern": 4},
        "KVC157",
        "contradict each other: layer 3 is sliding_attention by the one, full_attention by the other",
        "remove one",
    ),
    "negative": (LLAMA, {"num_key_value_heads": -8}, "KVC156", "must be a positive integer, not -8", ""),
    "zero": (LLAMA, {"num_attention_heads": 0}, "KVC156", "must be a positive integer, not 0", ""),
    "a list for a number": (LLAMA, {"head_dim": [128, 128]}, "KVC156", "not a list of 2", ""),
    "a text for a number": (LLAMA, {"head_dim": "128"}, "KVC156", 'not "128"', ""),
    "a number for a list": (OSS, {"layer_types": 24}, "KVC156", "must be a list of names, not 24", ""),
    "true for a number": (LLAMA, {"num_hidden_layers": True}, "KVC156", "not true", ""),
    "too many layers": (LLAMA, {"num_hidden_layers": 10**9}, "KVC156", "from 1 to 4096", ""),
    "a text for a rope": (LLAMA, {"rope_scaling": "llama3"}, "KVC156", "must be an object", ""),
    "unknown field": (LLAMA, {"kv_sharing": 2}, "KVC154", "unknown field `kv_sharing`", "--ignore-field kv_sharing"),
    "almost a known field": (LLAMA, {"headdim": 2}, "KVC154", "unknown field `headdim`", "did you mean `head_dim`?"),
    "window in a family without": (LLAMA, {"sliding_window": 9}, "KVC154", "`sliding_window`", "--ignore-field"),
    "unknown family": (LLAMA, {"model_type": "lama"}, "KVC153", "unknown model_type `lama`", "did you mean `llama`?"),
    "a family that is a number": (LLAMA, {"model_type": 7}, "KVC153", "unknown model_type 7", ""),
    "no family": (LLAMA, {"model_type": NOPE, "architectures": NOPE}, "KVC152", "`model_type`", "add"),
    "rope of another kind": (
        LLAMA,
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1]}},
        "KVC158",
        "no rotary embedding `longrope`",
        "`--ignore-field rope_scaling`",
    ),
    "rope without its factor": (LLAMA, {"rope_scaling": {"type": "linear"}}, "KVC155", "`factor` is missing", ""),
    "unknown field of a rope": (
        LLAMA,
        {"rope_scaling": {"type": "linear", "factor": 2, "warp": 1}},
        "KVC154",
        "unknown field `warp` of `rope_scaling`",
        "--ignore-field rope_scaling.warp",
    ),
    "a rope whose factor is a text": (LLAMA, {"rope_scaling": {"type": "linear", "factor": "2"}}, "KVC156", '"2"', ""),
    "ropes by layer type": (
        LLAMA,
        {"rope_scaling": None, "rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "KVC157",
        "an object for each kind of layer",
        "",
    ),
    "no rotated features": (
        values("class_defaults/phi3"),
        {"rope_parameters": {"partial_rotary_factor": 0.001}},
        "KVC157",
        "rotates 0 of 96 features",
        "",
    ),
    "an encoder": (GEMMA3, {"use_bidirectional_attention": True}, "KVC157", "no KV cache", ""),
    "a dtype of weights": (LLAMA, {"torch_dtype": "int8"}, "KVC157", "`torch_dtype` is `int8`", "`bfloat16`"),
    "compress_ratios too short": (V4, {"compress_ratios": [4]}, "KVC157", "1 entries for 43 layers", ""),
    "a ratio of another model": (V4, {"compress_ratios": [8] * 43}, "KVC157", "`compress_ratios` has 8", ""),
    "layers named twice": (
        KIMI,
        {"linear_attn_config": {**KIMI["linear_attn_config"], "kda_layers": [1]}},
        "KVC157",
        "do not name each of 27 layers once",
        "",
    ),
    "KDA sizes missing": (KIMI, {"linear_attn_config": {}}, "KVC155", "`linear_num_heads` is missing", ""),
    "pattern too short": (MIMO, {"hybrid_layer_pattern": [0, 1]}, "KVC157", "2 entries for 48 layers", ""),
    "state heads that do not multiply": (FALCON, {"mamba_d_head": 7}, "KVC157", "128 state heads of 7", ""),
    "heads that do not divide": (LLAMA, {"num_key_value_heads": 5}, "KVC104", "do not divide into 5 KV heads", ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_wrong_config(case: tuple[dict[str, Any], dict[str, Any], str, str, str], tmp_path: Path) -> None:
    config, change, code, message, help = case
    found = findings(tmp_path, changed(config, change))
    assert [finding.code for finding in found] == [code]
    assert message in found[0].message and help in found[0].help
    assert found[0].source and found[0].source.path == str(tmp_path / "config.json")


def test_all_findings_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    config = {"num_hidden_layers": -1, "warp": 1, **{k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}}
    del config["num_attention_heads"]
    found = findings(tmp_path, json.dumps(config, indent=1))
    assert sorted(finding.code for finding in found) == ["KVC154", "KVC155", "KVC156"]
    lines = [finding.source.line for finding in found if finding.source]
    assert lines == sorted(lines)


def test_a_finding_points_at_the_field(tmp_path: Path) -> None:
    text = json.dumps(
        {"model_type": "gemma3", "vision_config": {"head_dim": 1}, "text_config": {**GEMMA3, "head_dim": 0}}, indent=1
    )
    (found,) = findings(tmp_path, text)
    line = text.splitlines()[found.source.line - 1]  # type: ignore[union-attr]
    assert line.strip() == '"head_dim": 0,'
    assert found.path == "text_config.head_dim"


FILES: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "KVC151", "this is not JSON"),
    "yaml": (b"model_type: llama\n", "KVC151", "this is not JSON"),
    "cut off": (b'{"model_type": "llama",', "KVC151", "this is not JSON"),
    "binary": (bytes(range(256)), "KVC151", "not UTF-8"),
    "zeros": (bytes(100), "KVC151", "this is not JSON"),
    "a list": (b'[{"model_type": "llama"}]', "KVC152", "this is a list"),
    "a number": (b"7", "KVC152", "this is a number"),
    "null": (b"null", "KVC152", "this is null"),
    "twice": (b'{"model_type": "llama", "model_type": "qwen2"}', "KVC151", "`model_type` is given twice"),
    "deep": (b'{"a":' * 100_000, "KVC151", "nested too deep"),
    "digits": (b'{"model_type": ' + b"9" * 5000 + b"}", "KVC151", "this is not JSON"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_files_that_are_no_config(case: tuple[bytes, str, str], tmp_path: Path) -> None:
    data, code, message = case
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(KvcError) as raised:
        spec_from_config(path)
    (found,) = raised.value.diagnostics
    assert found.code == code and message in found.message


def test_200_megabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        stream.write(b'{"model_type": "llama"')
        for _ in range(200):
            stream.write(b" " * (1 << 20))
        stream.write(b"}")
    with pytest.raises(KvcError, match="larger than 16 MiB"):
        spec_from_config(path)


@pytest.mark.parametrize("name", ["missing.json", "a\0b", "x" * 5000])
def test_a_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(KvcError) as raised:
        spec_from_config(f"{tmp_path}/{name}")
    assert raised.value.diagnostics[0].code == "KVC150"


def test_a_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert load_spec_text(spec_from_config(path))


def test_ignored_fields_are_as_if_they_were_not_there(tmp_path: Path) -> None:
    longrope = {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}
    config = {**LLAMA, "kv_sharing": 2, "sliding_window": 4, **longrope}
    text = imported(tmp_path, config, ignore=("kv_sharing", "sliding_window", "rope_scaling"))
    assert load_spec_text(text).runs[0].shape.rope.kind == "default"
    assert "--ignore-field kv_sharing" in text


def test_a_field_inside_an_object_can_be_ignored(tmp_path: Path) -> None:
    config = {**LLAMA, "rope_scaling": {**LLAMA["rope_scaling"], "warp": 1}}
    assert imported(tmp_path, config, ignore=("rope_scaling.warp",))
    nested = {"model_type": "gemma3", "text_config": {**GEMMA3, "warp": 1}}
    for name in ("warp", "text_config.warp"):
        assert imported(tmp_path, nested, ignore=(name,))


def test_ignoring_what_is_not_there_is_a_finding(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, LLAMA, ignore=("hed_dim",))
    assert found.code == "KVC159" and "no such field" in found.message


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"encoding": "fp9"}, "KVC101"),
        ({"encoding": "fp8_ds_mla"}, "KVC102"),
        ({"name": "Not a name"}, "KVC0"),
        ({"max_seq_len": 10**9}, "KVC1"),
        ({"tensor": 7}, "KVC1"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], code: str, tmp_path: Path) -> None:
    path = saved(tmp_path, LLAMA)
    with pytest.raises(KvcError) as raised:
        spec_from_config(path, ImportOptions(**options))
    assert raised.value.diagnostics[0].code.startswith(code)
