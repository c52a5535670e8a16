"""The specs that come with kvc: they load, and say what the models' configs say."""

from collections import Counter

import pytest

from kvc.encodings import ENCODINGS, page_layout
from kvc.specs import library_specs, load_spec
from kvc.specs.resolved import Rope

# name without encoding: layers, heads, kv_heads, head_dim, max_position, rope, dtype
MODELS = {
    "smollm2-135m": (30, 9, 3, 64, 8192, Rope("default", "half", 64, 100_000.0), "fp32"),
    "llama-3.1-8b": (
        32,
        32,
        8,
        128,
        131_072,
        Rope(
            "llama3",
            "half",
            128,
            500_000.0,
            (("factor", 8.0), ("high_freq_factor", 4.0), ("low_freq_factor", 1.0), ("original_max_position", 8192.0)),
        ),
        "bf16",
    ),
    "qwen3-8b": (36, 32, 8, 128, 40_960, Rope("default", "half", 128, 1_000_000.0), "bf16"),
    "tiny": (4, 6, 3, 16, 256, Rope("default", "half", 16, 10_000.0), "fp32"),
}


# name: number of layers by kind, draft layers included
OTHERS = {
    "deepseek-v2-lite": {"mla": 27},
    "deepseek-v3": {"mla": 62},
    "deepseek-v3-bf16": {"mla": 61},
    "deepseek-v3-fp8": {"mla": 61},
    "deepseek-v3-mixed": {"mla": 61},
    "deepseek-v3.2": {"mla_sparse dsa": 61},
    "deepseek-v4": {"mla_sparse deepseek_v4": 43},
    "gemma-3": {"gqa": 26},
    "glm-5": {"mla_sparse dsa": 78},
    "gpt-oss-20b": {"gqa": 24},
    "kimi-k2": {"mla": 61},
    "kimi-linear": {"recurrent kda": 21, "mla": 6},
    "tiny-draft": {"gqa": 5},
    "tiny-dsa-fp32": {"mla_sparse dsa": 3},
    "tiny-dsa-nvfp4-fp8": {"mla_sparse dsa": 3},
    "tiny-mla-bf16": {"mla": 3},
    "tiny-mla-fp32": {"mla": 3},
    "tiny-mla-fp8": {"mla": 3},
    "tiny-mla-nvfp4-fp8": {"mla": 3},
    "tiny-staged": {"gqa": 2, "mla": 2},
    "qwen3-next": {"recurrent gated_delta_net": 36, "gqa": 12},
}
DENSE = [name for name in library_specs() if name not in OTHERS]


@pytest.mark.parametrize("name", OTHERS)
def test_layers_of_other_kinds(name: str) -> None:
    spec = load_spec(name)
    assert (spec.name, spec.file) == (name, f"{name}.yaml")
    counted: Counter[str] = Counter()
    for run in spec.runs:
        counted[run.shape.capability] += run.count
    assert counted == OTHERS[name]


@pytest.mark.parametrize("name", DENSE)
def test_library_spec(name: str) -> None:
    spec, model = load_spec(name), next(model for model in MODELS if name.startswith(f"{model}-"))
    encoding, _, twin = name.removeprefix(f"{model}-").partition("-")
    layers, heads, kv_heads, head_dim, max_position, rope, dtype = MODELS[model]
    assert (spec.name, spec.file, spec.num_layers) == (name, f"{name}.yaml", layers)
    assert (spec.max_position, spec.dtype) == (max_position, dtype)
    for run in spec.runs:
        assert (run.shape.heads, run.shape.kv_heads, run.shape.head_dim, run.shape.rope) == (
            heads,
            kv_heads,
            head_dim,
            rope,
        )
    if encoding != "mixed":
        assert {run.encoding for run in spec.runs} == {encoding}
        assert {run.retain.encoding if run.retain else "" for run in spec.runs} == {twin}


def test_expected_names() -> None:
    assert list(library_specs()) == sorted(
        [*OTHERS]
        + ["llama-3.1-8b-bf16", "llama-3.1-8b-fp8", "qwen3-8b-bf16", "qwen3-8b-fp8"]
        + [f"smollm2-135m-{encoding}" for encoding in ("fp32", "bf16", "fp8", "nvfp4-bf16")]
        + [f"tiny-{encoding}" for encoding in ("fp32", "bf16", "fp8", "nvfp4-bf16", "mixed")]
    )


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [("llama-3.1-8b-bf16", 131_072), ("llama-3.1-8b-fp8", 65_536), ("smollm2-135m-bf16", 23_040)],
)
def test_bytes_of_a_token(name: str, bytes_per_token: int) -> None:
    runs = load_spec(name).runs
    pages = [page_layout(ENCODINGS[run.encoding], run.shape.fields, run.tokens_per_page) for run in runs]
    assert sum(page.row_bytes * run.count for page, run in zip(pages, runs, strict=True)) == bytes_per_token


def test_the_mixed_tiny_spec_has_two_encodings() -> None:
    assert [run.encoding for run in load_spec("tiny-mixed").runs] == ["fp8", "fp32", "fp8"]
