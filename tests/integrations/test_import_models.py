"""What `kvc init` makes of a config is what the model's own code caches.

A small model of every family runs forty tokens on transformers' cache; every tensor in that cache is compared with the
layer that the imported spec has in its place, and so are softmax scales, sinks and the widths of rotary embeddings.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from importable_models import SETTINGS
from packaging.version import Version
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from kvc.specs import ResolvedSpec, load_spec_text
from kvc.specs.hf.families import FAMILIES
from kvc.specs.hf.importing import spec_from_config

TOKENS = 40
# `kimi_k2` is the config of DeepSeek V3's class under another name.
SAME_CODE = {"kimi_k2"}
# Families that transformers 5.17 has no model of, or one that caches expanded rows or writes another config.
SINCE_5_24 = {"deepseek_v32", "glm_moe_dsa", "longcat_flash"}


@pytest.fixture(scope="module", params=SETTINGS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, ResolvedSpec]:
    """Name of the family, the model and the spec of its config."""
    if request.param in SINCE_5_24 and Version(transformers.__version__) < Version("5.24"):
        pytest.skip(f"transformers {transformers.__version__} has another {request.param}")
    config = CONFIG_MAPPING[request.param](**SETTINGS[request.param])
    file = tmp_path_factory.mktemp("configs") / "config.json"
    file.write_text(config.to_json_string())
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return request.param, model, load_spec_text(spec_from_config(file))


def layers(spec: ResolvedSpec) -> Iterator[tuple[Any, Any]]:
    """Shape and coverage of each layer."""
    return ((run.shape, run.coverage) for run in spec.runs for _ in range(run.count))


def of_the_model(cache: Any, index: int) -> dict[str, Any]:
    """Tensors of one layer of transformers' cache: plain attributes, and the ones in dictionaries by state."""
    held = dict(vars(cache.layers[index])) if index < len(cache.layers) else {}
    nested = {
        f"{name}.{key}": value
        for name, inner in held.items()
        if isinstance(inner, dict)
        for key, value in inner.items()
    }
    linear = getattr(cache, "linear_cache", [])
    state = {"linear": linear[index]} if index < len(linear) else {}
    found = {**held, **nested, **state}
    return {
        name: tuple(value.shape) for name, value in found.items() if isinstance(value, torch.Tensor) and value.numel()
    }


def rows(coverage: Any) -> int:
    """Rows that transformers keeps of forty tokens: of a window all but the place of the next token."""
    return min(TOKENS, coverage.window - 1) if coverage.kind == "window" else TOKENS


def gqa_holds(shape: Any, coverage: Any, held: dict[str, Any]) -> None:
    assert held["keys"] == (1, shape.kv_heads, rows(coverage), shape.head_dim)
    assert held["values"] == (1, shape.kv_heads, rows(coverage), shape.v_head_dim)


def mla_holds(shape: Any, coverage: Any, held: dict[str, Any]) -> None:
    assert held["keys"] == (1, 1, TOKENS, shape.kv_lora_rank)
    assert held["values"] == (1, 1, TOKENS, shape.qk_rope_head_dim)
    owns_keys = shape.indexer is not None and not shape.indexer.shared
    assert held.get("indexer_keys") == ((1, TOKENS, shape.indexer.head_dim) if owns_keys else None)


def v4_holds(shape: Any, coverage: Any, held: dict[str, Any]) -> None:
    assert held["keys"] == (1, 1, shape.window - 1, shape.head_dim)
    compressed = shape.compressor and (1, TOKENS // shape.compressor.ratio, shape.head_dim)
    assert held.get("compressed_kv.compressor") == compressed
    keys = shape.indexer and (1, TOKENS // shape.compressor.ratio, shape.indexer.head_dim)
    assert held.get("compressed_kv.indexer") == keys
    assert ("overlap_kv.compressor" in held) == bool(shape.compressor and shape.compressor.overlap)


def recurrent_holds(shape: Any, coverage: Any, held: dict[str, Any]) -> None:
    """transformers keeps one more column of a convolution, and those of q, k and v in one tensor."""
    convolutions = [state.shape for state in shape.states if state.name.startswith("conv")]
    if convolutions:
        channels, columns = sum(size[0] for size in convolutions), convolutions[0][1]
        assert held["conv_states.0"] == (1, channels, columns + 1)
    name = "recurrent_states.0" if "recurrent_states.0" in held else "linear"
    (state,) = (state for state in shape.states if not state.name.startswith("conv"))
    assert held[name] == (1, *state.shape)


HOLDS = {"GqaShape": gqa_holds, "MlaShape": mla_holds, "DeepseekV4Shape": v4_holds, "RecurrentShape": recurrent_holds}


def test_every_family_has_a_model() -> None:
    assert set(FAMILIES) - SAME_CODE == set(SETTINGS)


def test_the_cache_holds_what_the_spec_says(imported: tuple[str, Any, ResolvedSpec]) -> None:
    name, model, spec = imported
    cache = model(torch.arange(TOKENS)[None] + 3, use_cache=True).past_key_values
    ours = list(layers(spec))
    a_layer = 2 if name == "falcon_h1" else 1  # layers of the spec for one of the model
    assert len(ours) == a_layer * (len(cache.layers) + (name == "minimax"))  # whose last layer has no KV cache
    for index, (shape, coverage) in enumerate(ours):
        HOLDS[type(shape).__name__](shape, coverage, of_the_model(cache, index // a_layer))


def attention_modules(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(getattr(module, "scaling", None), float)]


def test_scores_are_scaled_as_in_the_model(imported: tuple[str, Any, ResolvedSpec]) -> None:
    _, model, spec = imported
    modules = [m for m in attention_modules(model) if "Indexer" not in type(m).__name__]
    ours = [shape.softmax_scale for shape, _ in layers(spec) if hasattr(shape, "softmax_scale")]
    theirs = [module.scaling for module in modules]
    assert theirs and set(theirs) == {theirs[0]}
    assert all(math.isclose(scale, theirs[0], rel_tol=1e-6) for scale in ours)


def test_sinks_are_where_the_model_has_them(imported: tuple[str, Any, ResolvedSpec]) -> None:
    _, model, spec = imported
    theirs = sum(parameter.endswith("self_attn.sinks") for parameter, _ in model.named_parameters())
    assert sum(bool(getattr(shape, "sink_logits", False)) for shape, _ in layers(spec)) == theirs


def test_rotated_features_are_as_many_as_in_the_model(imported: tuple[str, Any, ResolvedSpec]) -> None:
    _, model, spec = imported
    theirs = {
        2 * buffer.numel()
        for name, buffer in model.named_buffers()
        if name.startswith("model.rotary_emb") and name.endswith("inv_freq") and "original" not in name
    }
    assert {shape.rope.dim for shape, _ in layers(spec) if getattr(shape, "rope", None)} == theirs
