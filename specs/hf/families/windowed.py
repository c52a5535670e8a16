"""Families that alternate windows and full attention: Gemma, gpt-oss, Command, OLMo 3, MiMo."""

import math
from typing import Any

from kvc.specs.hf.config import Config, Derived
from kvc.specs.hf.families.family import HEADS, ROPE_READS, Family
from kvc.specs.hf.families.ignored import MOE_IGNORES, MTP_IGNORES
from kvc.specs.hf.layers import (
    FULL,
    SLIDING,
    Gqa,
    agree,
    by_name,
    check_length,
    gqa,
    interval,
    layer_names,
    sliding_size,
    window,
)
from kvc.specs.hf.rope import RopeRule, Site

_WINDOW_READS = ("sliding_window", "layer_types", *ROPE_READS)
_KINDS = (FULL, SLIDING)


def _names(config: Config, every: int, pattern: str = "") -> list[str]:
    """`layer_types`, or full attention in each ``every``-th layer; field ``pattern``, if there is one, says so."""
    derived = interval(config, SLIDING, FULL, config.get(pattern) or every)
    names = layer_names(config, lambda: derived, _KINDS)
    agree(config, pattern, names, derived)
    return names


def _windowed(config: Config, rule: Gqa) -> dict[str, Any]:
    return gqa(config, rule, window(config))


def _two_kinds(config: Config, names: list[str], full: Gqa, sliding: Gqa) -> list[Derived]:
    if SLIDING in names:
        sliding_size(config)
    made = {FULL: config.derive(gqa, full), SLIDING: config.derive(_windowed, sliding)}
    return by_name(names, made)


def _gpt_oss(config: Config) -> list[Derived]:
    rule = Gqa(head_rule=True, sinks=True)
    return _two_kinds(config, _names(config, 2), rule, rule)


def _cohere2(config: Config) -> list[Derived]:
    """Full layers have no rotary embedding; the family's class takes head_dim from hidden_size whatever is written."""
    rule = RopeRule(layout="interleaved")
    names = _names(config, 4, "sliding_window_pattern")
    made = _two_kinds(config, names, Gqa(None, head_rule=True), Gqa(rule, head_rule=True))
    width = made[0].value["head_dim"]
    if width * config.need("num_attention_heads") != config.need("hidden_size"):
        message = f"`head_dim` {width} is not hidden_size / num_attention_heads"
        raise config.contradiction(message, "head_dim", "remove `head_dim`: the family's class computes it")
    return made


def _olmo3(config: Config) -> list[Derived]:
    """Scaled rotary embeddings are for full layers."""
    full, sliding = Gqa(site=Site(FULL), head_rule=True), Gqa(site=Site(SLIDING, scaled=False), head_rule=True)
    return _two_kinds(config, _names(config, 4), full, sliding)


def _gemma_layer(config: Config, rule: Gqa, size: int | None = None) -> dict[str, Any]:
    """Scores are scaled by `query_pre_attn_scalar`, not by the width of a head, and may be capped."""
    layer = gqa(config, rule, size)
    scale = config.need("query_pre_attn_scalar") ** -0.5
    if not math.isclose(scale, layer["head_dim"] ** -0.5):
        layer["softmax_scale"] = scale
    if cap := config.get("attn_logit_softcapping"):
        layer["softcap"] = cap
    return layer


def _gemma_sliding(config: Config, rule: Gqa) -> dict[str, Any]:
    return _gemma_layer(config, rule, window(config))


def _gemma(config: Config, names: list[str], full: Gqa, sliding: Gqa) -> list[Derived]:
    if config.get("use_bidirectional_attention", False):
        message = "`use_bidirectional_attention` is true: an encoder has no KV cache"
        raise config.contradiction(message, "use_bidirectional_attention", "name the config of a causal model")
    if SLIDING in names:
        sliding_size(config)
    made = {FULL: config.derive(_gemma_layer, full), SLIDING: config.derive(_gemma_sliding, sliding)}
    return by_name(names, made)


def _gemma2(config: Config) -> list[Derived]:
    return _gemma(config, _names(config, 2), Gqa(), Gqa())


def _gemma3(config: Config) -> list[Derived]:
    pattern = "sliding_window_pattern" if config.has("sliding_window_pattern") else "_sliding_window_pattern"
    sliding = Gqa(site=Site(SLIDING, "rope_local_base_freq", scaled=False))
    return _gemma(config, _names(config, 6, pattern), Gqa(site=Site(FULL)), sliding)


_MIMO_ROPE = RopeRule(partial=0.334)
_MIMO_SLIDING = {
    "num_attention_heads": "swa_num_attention_heads",
    "num_key_value_heads": "swa_num_key_value_heads",
    "head_dim": "swa_head_dim",
}


def _mimo_names(config: Config) -> list[str]:
    """`hybrid_layer_pattern` has 1 for a window; by default the first layer and each sixth are full."""
    pattern = config.get("hybrid_layer_pattern")
    if pattern is None:
        return [FULL, *interval(config, SLIDING, FULL, 6)[1:]]
    check_length(config, "hybrid_layer_pattern", pattern)
    return [SLIDING if entry else FULL for entry in pattern]


def _mimo_full(config: Config) -> dict[str, Any]:
    sinks = config.get("add_full_attention_sink_bias", False)
    layer = gqa(config, Gqa(_MIMO_ROPE, Site(FULL), sinks=sinks))
    return {**layer, "v_head_dim": config.need("v_head_dim")}


def _mimo_sliding(config: Config) -> dict[str, Any]:
    """Windows of `sliding_window_size` tokens before a token and itself; twice the KV heads of full layers."""
    name = "sliding_window_size" if config.has("sliding_window_size") else "sliding_window"
    sliding_size(config, name)
    size = window(config, name, 1 if name == "sliding_window_size" else 0)
    own = {role: field for role, field in _MIMO_SLIDING.items() if config.has(field)}
    sinks = config.get("add_swa_attention_sink_bias", True)
    layer = gqa(config, Gqa(_MIMO_ROPE, Site(SLIDING, "swa_rope_theta"), sinks=sinks, fields=own), size)
    if "num_key_value_heads" not in own:
        layer["kv_heads"] *= 2
    return {**layer, "v_head_dim": config.get("swa_v_head_dim") or config.need("v_head_dim")}


def _mimo(config: Config) -> list[Derived]:
    derived = _mimo_names(config)
    names = layer_names(config, lambda: derived, _KINDS)
    agree(config, "hybrid_layer_pattern", names, derived)
    return by_name(names, {FULL: config.derive(_mimo_full), SLIDING: config.derive(_mimo_sliding)})


_GEMMA_READS = (
    *_WINDOW_READS,
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "use_bidirectional_attention",
)
FAMILIES = {
    "gemma2": Family(
        _gemma2,
        needs=("num_hidden_layers", *HEADS, "head_dim", "query_pre_attn_scalar"),
        reads=_GEMMA_READS,
        ignores=("final_logit_softcapping", "sliding_window_size"),
        defaults={"rope_theta": 10_000},
    ),
    # Released configs leave out what the class has as a default, sizes of heads among them.
    "gemma3_text": Family(
        _gemma3,
        needs=("num_hidden_layers",),
        reads=(
            *HEADS,
            "head_dim",
            "rope_local_base_freq",
            "sliding_window_pattern",
            "_sliding_window_pattern",
            *_GEMMA_READS,
        ),
        ignores=("final_logit_softcapping",),
        defaults={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
            "rope_theta": 1_000_000,
            "rope_local_base_freq": 10_000,
        },
    ),
    "gpt_oss": Family(
        _gpt_oss,
        needs=("num_hidden_layers", *HEADS),
        reads=("head_dim", "hidden_size", *_WINDOW_READS),
        ignores=("initial_context_length", "rope_ntk_alpha", "rope_ntk_beta", "rope_scaling_factor", *MOE_IGNORES),
        defaults={"rope_theta": 150_000},
    ),
    "cohere2": Family(
        _cohere2,
        needs=("num_hidden_layers", "num_attention_heads", "hidden_size"),
        reads=("num_key_value_heads", "head_dim", "sliding_window_pattern", *_WINDOW_READS),
        ignores=(
            "logit_scale",
            "use_qk_norm",
            "order_of_interleaved_layers",
            "position_embedding_type",
            "rotary_pct",
            "use_embedding_sharing",
            "use_gated_activation",
            "use_parallel_block",
            "use_parallel_embedding",
        ),
        defaults={"rope_theta": 10_000},
    ),
    "olmo3": Family(
        _olmo3,
        needs=("num_hidden_layers", "num_attention_heads"),
        reads=("num_key_value_heads", "head_dim", "hidden_size", *_WINDOW_READS),
        defaults={"rope_theta": 500_000},
    ),
    "mimo_v2_flash": Family(
        _mimo,
        needs=("num_hidden_layers", *HEADS, "head_dim", "v_head_dim"),
        reads=(
            *_WINDOW_READS,
            *_MIMO_SLIDING.values(),
            "sliding_window_size",
            "swa_v_head_dim",
            "swa_rope_theta",
            "partial_rotary_factor",
            "hybrid_layer_pattern",
            "add_swa_attention_sink_bias",
            "add_full_attention_sink_bias",
        ),
        ignores=("attention_value_scale", "attention_chunk_size", "hybrid_block_size", *MOE_IGNORES, *MTP_IGNORES),
        defaults={"rope_theta": 5_000_000, "swa_rope_theta": 10_000},
    ),
}
