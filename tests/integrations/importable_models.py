"""Small models of every family that `kvc init` imports: model_type -> settings of its config class."""

from typing import Any

_PLAIN: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 64,
    "num_hidden_layers": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_WIDE = {**_PLAIN, "head_dim": 32}
_WINDOW = {"sliding_window": 20}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED = {"n_routed_experts": 8, "n_group": 1, "topk_group": 1, **_EXPERTS}
_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
_MLA = {**_PLAIN, **_LATENT, **_ROUTED, "n_shared_experts": 1, "first_k_dense_replace": 1}
_INDEXED = {**_MLA, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
_DELTA = {"linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
_V4_LAYERS = ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention"]


def _without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


SETTINGS: dict[str, dict[str, Any]] = {
    "llama": _PLAIN,
    "qwen2": {**_PLAIN, "use_sliding_window": True, "max_window_layers": 4, **_WINDOW},
    "qwen3": {**_WIDE, "use_sliding_window": True, "max_window_layers": 4, **_WINDOW},
    "qwen3_moe": {**_WIDE, "num_experts": 4, "use_sliding_window": True, **_EXPERTS, **_WINDOW},
    "mistral": {**_WIDE, **_WINDOW},
    "gemma2": {**_WIDE, "query_pre_attn_scalar": 24, **_WINDOW},
    "gemma3_text": {**_WIDE, "query_pre_attn_scalar": 24, **_WINDOW},
    "gpt_oss": {**_WIDE, "num_local_experts": 4, "num_experts_per_tok": 2, **_WINDOW},
    "cohere2": {**_PLAIN, **_WINDOW},
    "olmo3": {**_PLAIN, **_WINDOW},
    "phi3": {**_PLAIN, **_WINDOW},
    "glm4_moe": {**_WIDE, "n_routed_experts": 4, **_EXPERTS},
    "deepseek_v2": _MLA,
    "deepseek_v3": {**_MLA, "rope_parameters": _YARN},
    "deepseek_v32": _INDEXED,
    "glm_moe_dsa": {**_INDEXED, "index_topk_freq": 4, "index_skip_topk_offset": 3},
    "longcat_flash": {
        **_without(_PLAIN, "num_hidden_layers", "intermediate_size"),
        **_LATENT,
        "num_layers": 3,
        "n_routed_experts": 8,
        "zero_expert_num": 2,
        "ffn_hidden_size": 32,
        "expert_ffn_hidden_size": 16,
        "moe_topk": 2,
        "head_dim": 8,
    },
    "deepseek_v4": {
        **_without(_PLAIN, "num_key_value_heads", "intermediate_size"),
        "num_hidden_layers": 6,
        "head_dim": 32,
        "q_lora_rank": 16,
        "o_lora_rank": 16,
        "o_groups": 2,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_topk": 4,
        "n_routed_experts": 4,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        "layer_types": _V4_LAYERS * 2,
        **_EXPERTS,
        **_WINDOW,
    },
    "qwen3_next": {**_WIDE, **_DELTA, "num_experts": 4, "shared_expert_intermediate_size": 16, **_EXPERTS},
    "qwen3_5_text": {**_WIDE, **_DELTA},
    "qwen3_5_moe_text": {**_WIDE, **_DELTA, "num_experts": 4, "shared_expert_intermediate_size": 16, **_EXPERTS},
    "kimi_linear": {
        **_without(_MLA, "n_routed_experts"),
        "num_local_experts": 8,
        "linear_head_dim": 8,
        "linear_num_heads": 3,
    },
    "falcon_h1": {
        **_PLAIN,
        "mamba_d_ssm": 96,
        "mamba_n_heads": 6,
        "mamba_d_state": 10,
        "mamba_n_groups": 2,
        "num_hidden_layers": 3,
    },
    "minimax": {**_WIDE, "num_local_experts": 4},
    "mimo_v2_flash": {
        **_PLAIN,
        "num_attention_heads": 8,
        "head_dim": 48,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        **_EXPERTS,
        **_WINDOW,
    },
}
