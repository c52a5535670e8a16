"""What values the fields of configs have: the same name means the same in all families that read it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvc.specs.suggestions import shortened

_MAX = 2**30


@dataclass(frozen=True)
class FieldType:
    """Values of a field: what ``accepts`` them, and how a message calls them."""

    name: str
    accepts: Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MAX


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1e18 and math.isfinite(value)


def _is_layers(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MAX_LAYERS


def _list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(accepts, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


MAX_LAYERS = 4096
COUNT = FieldType("a positive integer", _is_count)
LAYERS = FieldType(f"a number of layers from 1 to {MAX_LAYERS}", _is_layers)
WHOLE = FieldType("an integer, 0 or more", _is_whole)
SIZE = FieldType("a positive number", lambda value: _is_number(value) and value > 0)
NUMBER = FieldType("a number, 0 or more", _is_number)
FLAG = FieldType("true or false", lambda value: isinstance(value, bool))
TEXT = FieldType("a text", _is_text)
NAMES = FieldType("a list of names", _list_of(_is_text))
WHOLES = FieldType("a list of integers", _list_of(_is_whole))
OBJECT = FieldType("an object", lambda value: isinstance(value, dict))
AUTO_COUNT = FieldType('a positive integer or "auto"', lambda value: value == "auto" or _is_count(value))
PATTERN = FieldType("a text or a list of names", lambda value: _is_text(value) or _list_of(_is_text)(value))

_BY_TYPE: dict[FieldType, tuple[str, ...]] = {
    TEXT: ("model_type", "dtype", "torch_dtype", "mamba_ssm_dtype", "type", "rope_type"),
    LAYERS: ("num_hidden_layers", "num_layers"),
    COUNT: (
        "max_position_embeddings",
        "model_max_length",
        "original_max_position_embeddings",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "v_head_dim",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "qk_head_dim",
        "sliding_window",
        "sliding_window_size",
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "full_attention_interval",
        "index_head_dim",
        "index_n_heads",
        "index_topk",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_head_dim",
        "linear_num_heads",
        "short_conv_kernel_size",
        "num_heads",
        "mamba_d_ssm",
        "mamba_n_heads",
        "mamba_n_groups",
        "mamba_d_state",
        "mamba_d_conv",
        "mamba_expand",
        "swa_num_attention_heads",
        "swa_num_key_value_heads",
        "swa_head_dim",
        "swa_v_head_dim",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "compress_rate_csa",
        "compress_rate_hca",
    ),
    WHOLE: ("max_window_layers", "index_topk_freq", "index_skip_topk_offset", "num_nextn_predict_layers"),
    SIZE: (
        "rope_theta",
        "swa_rope_theta",
        "rope_local_base_freq",
        "compress_rope_theta",
        "partial_rotary_factor",
        "query_pre_attn_scalar",
        "attn_logit_softcapping",
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "beta_slow",
        "attention_factor",
    ),
    NUMBER: ("mscale", "mscale_all_dim"),
    FLAG: (
        "use_sliding_window",
        "use_bidirectional_attention",
        "rope_interleave",
        "indexer_rope_interleave",
        "mla_use_nope",
        "truncate",
        "add_swa_attention_sink_bias",
        "add_full_attention_sink_bias",
    ),
    NAMES: ("layer_types", "indexer_types"),
    PATTERN: ("index_topk_pattern",),
    WHOLES: ("compress_ratios", "hybrid_layer_pattern", "full_attn_layers", "kda_layers"),
    OBJECT: ("rope_scaling", "rope_parameters", "linear_attn_config", "compress_rates"),
    AUTO_COUNT: ("mamba_d_head",),
}
FIELD_TYPES: dict[str, FieldType] = {name: kind for kind, names in _BY_TYPE.items() for name in names}


def shown(value: Any) -> str:
    """A value for a message: short, whatever it is."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shortened(f'"{value}"' if isinstance(value, str) else str(value))
