"""Small random models of every family, and the specs that describe them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import yaml
from tiny_latent_models import LATENT
from tiny_sparse_models import SPARSE, sparse_layers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from kvc.compiler import compile_spec
from kvc.runtime.loader import LoadedArtifact

VOCABULARY = 97
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_SHARED = {
    "vocab_size": VOCABULARY,
    "intermediate_size": 48,
    "initializer_range": 0.2,  # large enough for peaked attention and clear winners among the logits
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}
_CONFIGS = {
    "llama-odd-heads": (
        LlamaForCausalLM,
        lambda: LlamaConfig(
            hidden_size=36, num_hidden_layers=2, num_attention_heads=9, num_key_value_heads=3, head_dim=8, **_SHARED
        ),
    ),
    "llama-scaled-rope-tied": (
        LlamaForCausalLM,
        lambda: LlamaConfig(
            hidden_size=40,
            num_hidden_layers=4,
            num_attention_heads=5,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=True,
            rope_parameters=dict(LLAMA3_ROPE),
            **_SHARED,
        ),
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        lambda: Qwen3Config(
            hidden_size=42, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=16, **_SHARED
        ),
    ),
}
MODELS = tuple(_CONFIGS)
LATENT_MODELS = tuple(LATENT)
SPARSE_MODELS = tuple(SPARSE)


def make_model(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A random model of ``MODELS``, ``LATENT_MODELS`` or ``SPARSE_MODELS`` in eval mode, the same every time."""
    torch.manual_seed(7)
    return _fresh(name).to(dtype).eval()


def _fresh(name: str) -> Any:
    if name in LATENT | SPARSE:
        kind, config, settings = (LATENT | SPARSE)[name]
        return kind(config(**_SHARED, **deepcopy(settings)))
    kind, config = _CONFIGS[name]
    return kind(config())


_ROPE_NAMES = {
    "rope_type": "kind",
    "rope_theta": "theta",
    "original_max_position_embeddings": "original_max_position",
}
_NOT_ROPE = ("partial_rotary_factor", "llama_4_scaling_beta", "type")


def _rope(config: Any) -> dict[str, Any]:
    rope = {name: value for name, value in config.rope_parameters.items() if name not in _NOT_ROPE}
    if rope["rope_type"] == "linear":
        rope.pop("original_max_position_embeddings", None)
    return {_ROPE_NAMES.get(name, name): value for name, value in rope.items()}


def _gqa_layer(config: Any) -> dict[str, Any]:
    return {
        "kind": "gqa",
        "repeat": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "rope": _rope(config),
    }


def _latent_layer(config: Any) -> dict[str, Any]:
    dims = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    layout = "interleaved" if getattr(config, "rope_interleave", True) else "half"
    return {
        "kind": "mla",
        "repeat": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        **{name: getattr(config, name) for name in dims},
        "rope": _rope(config) | {"layout": layout},
    }


def _layers(config: Any) -> list[dict[str, Any]]:
    if hasattr(config, "index_topk"):
        return sparse_layers(config, _latent_layer(config))
    return [_latent_layer(config) if hasattr(config, "kv_lora_rank") else _gqa_layer(config)]


def spec_values(config: Any, encoding: str = "fp32", dtype: str = "fp32", **target: Any) -> dict[str, Any]:
    """The spec of a model as YAML values."""
    cache: dict[str, Any] = {"encoding": encoding, "tokens_per_page": 8}
    if encoding == "fp8":
        cache["scales"] = {"source": "unit"}
    limits = {"device": "cpu", "max_sequences": 8, "max_seq_len": 256, "max_tokens": 512, "buckets": [1, 2, 4, 8]}
    return {
        "kvc": 1,
        "name": f"{config.model_type}-{encoding}",
        "model": {"dtype": dtype, "max_position": 512, "layers": _layers(config)},
        "cache": cache,
        "target": limits | target,
    }


def write_spec(folder: Path, values: dict[str, Any]) -> Path:
    """The values as a spec file."""
    path = folder / f"{values['name']}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def compile_for(folder: Path, model: Any, encoding: str = "fp32", dtype: str = "fp32", **target: Any) -> LoadedArtifact:
    """A compiled cache for a model."""
    path = write_spec(folder, spec_values(model.config, encoding, dtype, **target))
    return LoadedArtifact(compile_spec(path).artifact)


def token_ids(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random token ids, none of them padding."""
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))
