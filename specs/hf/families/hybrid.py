"""Families with recurrent layers: Qwen3-Next, Qwen3.5, Kimi Linear, Falcon-H1, MiniMax."""

from functools import partial
from typing import Any

from kvc.specs.hf.config import Config, Derived
from kvc.specs.hf.dtypes import DTYPES, activation_dtype
from kvc.specs.hf.families.family import HEADS, ROPE_READS, Family
from kvc.specs.hf.families.ignored import MOE_IGNORES, MTP_IGNORES, words
from kvc.specs.hf.layers import FULL, LINEAR, Gqa, agree, by_name, gqa, head_dim, interval, layer_names, mla, window
from kvc.specs.hf.rope import RopeRule
from kvc.specs.suggestions import listed, shortened

_KINDS = (FULL, LINEAR)
_STATES_NOTE = "not from the config: the state in fp32 and the convolution's inputs in the activation dtype"


def _stored(config: Config) -> dict[str, str]:
    """How states are kept: `mamba_ssm_dtype` where the config has it."""
    given = config.get("mamba_ssm_dtype")
    if given is None:
        config.note(_STATES_NOTE)
        return {"state_dtype": "fp32", "conv_dtype": activation_dtype(config)}
    if given not in DTYPES:
        message = f"`mamba_ssm_dtype` is `{shortened(given)}`"
        raise config.contradiction(message, "mamba_ssm_dtype", f"supported: {listed(DTYPES)}")
    return {"state_dtype": DTYPES[given], "conv_dtype": activation_dtype(config)}


def _delta_net(config: Config) -> dict[str, Any]:
    return {
        "kind": "recurrent",
        "variant": "gated_delta_net",
        "key_heads": config.need("linear_num_key_heads"),
        "value_heads": config.need("linear_num_value_heads"),
        "key_head_dim": config.need("linear_key_head_dim"),
        "value_head_dim": config.need("linear_value_head_dim"),
        "conv_kernel": config.need("linear_conv_kernel_dim"),
        **_stored(config),
    }


def _qwen(config: Config) -> list[Derived]:
    """Each `full_attention_interval`-th layer is full attention, a quarter of it rotated; others gated delta nets."""
    every = "full_attention_interval"
    derived = interval(config, LINEAR, FULL, config.get(every) or 4)
    names = layer_names(config, lambda: derived, _KINDS)
    agree(config, every, names, derived)
    made = {FULL: config.derive(gqa, Gqa(RopeRule(partial=0.25))), LINEAR: config.derive(_delta_net)}
    return by_name(names, made)


def _kda(config: Config) -> dict[str, Any]:
    """Sizes stand in `linear_attn_config` of released checkpoints, and beside the rest in newer files."""
    inner = config.inside("linear_attn_config")
    older = {"heads": "num_heads", "head_dim": "head_dim", "conv_kernel": "short_conv_kernel_size"}
    newer = {"heads": "linear_num_heads", "head_dim": "linear_head_dim", "conv_kernel": "linear_conv_kernel_dim"}
    inner.check(older.values())
    sizes = {role: inner.get(name) or config.need(newer[role]) for role, name in older.items()}
    return {"kind": "recurrent", "variant": "kda", **sizes, **_stored(config)}


def _kimi_names(config: Config) -> list[str]:
    """By the lists of `linear_attn_config`, which count from 1; otherwise every fourth from layer 4 is full."""
    count, inner = config.need("num_hidden_layers"), config.inside("linear_attn_config")
    inner.check(("full_attn_layers", "kda_layers"))
    full, linear = inner.get("full_attn_layers"), inner.get("kda_layers")
    if full is None or linear is None:
        return [FULL if index and index % 4 == 0 else LINEAR for index in range(count)]
    if sorted(full + linear) != list(range(1, count + 1)):
        message = f"`full_attn_layers` and `kda_layers` do not name each of {count} layers once"
        raise inner.contradiction(message, "kda_layers", f"num_hidden_layers is {count}; both lists count from 1")
    return [FULL if index + 1 in set(full) else LINEAR for index in range(count)]


def _kimi_linear(config: Config) -> list[Derived]:
    """Latent attention without a rotary embedding, and Kimi delta attention."""
    if not config.get("mla_use_nope", True):
        message = "`mla_use_nope` is false, and this family's attention has no rotary embedding"
        raise config.contradiction(message, "mla_use_nope", "`--ignore-field mla_use_nope` plans it without one")
    names = layer_names(config, partial(_kimi_names, config), _KINDS)
    return by_name(names, {FULL: config.derive(mla, None), LINEAR: config.derive(_kda)})


def _mamba2(config: Config) -> dict[str, Any]:
    heads = config.need("mamba_n_heads")
    channels = config.get("mamba_d_ssm") or config.need("mamba_expand") * config.need("hidden_size")
    width = config.get("mamba_d_head", "auto")
    width = channels // heads if width == "auto" else width
    if width * heads != channels:
        message = f"{heads} state heads of {width} are not the {channels} channels of the state space model"
        raise config.contradiction(message, "mamba_n_heads", "mamba_n_heads * mamba_d_head must be mamba_d_ssm")
    return {
        "kind": "recurrent",
        "variant": "mamba2",
        "heads": heads,
        "head_dim": width,
        "state_dim": config.need("mamba_d_state"),
        "groups": config.need("mamba_n_groups"),
        "conv_kernel": config.need("mamba_d_conv"),
        **_stored(config),
    }


def _falcon_h1(config: Config) -> list[Derived]:
    """Mamba-2 and attention side by side in every layer: two caches each."""
    config.note("two caches a layer of the model: Mamba-2 and attention side by side")
    pair = [config.derive(_mamba2), config.derive(gqa, Gqa(head_rule=True))]
    return pair * int(config.need("num_hidden_layers"))


def _lightning(config: Config) -> dict[str, Any]:
    """Lightning attention: one matrix a head, in the activation dtype as the model's code has it."""
    heads, width = config.need("num_attention_heads"), head_dim(config, Gqa(head_rule=True))
    state = {"name": "state", "shape": [heads, width, width], "dtype": activation_dtype(config), "sharded": 0}
    return {"kind": "recurrent", "variant": "other", "states": [state]}


def _minimax_full(config: Config) -> dict[str, Any]:
    return gqa(config, Gqa(head_rule=True), window(config))


def _minimax(config: Config) -> list[Derived]:
    """Full attention and lightning attention by turns, where `layer_types` does not say."""
    names = layer_names(config, lambda: interval(config, FULL, LINEAR, 2), _KINDS)
    return by_name(names, {FULL: config.derive(_minimax_full), LINEAR: config.derive(_lightning)})


_LINEAR_NEEDS = (
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
)
_QWEN = Family(
    _qwen,
    needs=("num_hidden_layers", *HEADS, "head_dim", *_LINEAR_NEEDS),
    reads=("layer_types", "full_attention_interval", "partial_rotary_factor", "mamba_ssm_dtype", *ROPE_READS),
    ignores=("attn_output_gate", "output_gate_type", "use_sliding_window", *MOE_IGNORES, *MTP_IGNORES),
    defaults={"rope_theta": 10_000},
)
FAMILIES = {
    "qwen3_next": _QWEN,
    "qwen3_5_text": _QWEN,
    "qwen3_5_moe_text": _QWEN,
    "kimi_linear": Family(
        _kimi_linear,
        needs=(
            "num_hidden_layers",
            "num_attention_heads",
            "kv_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "v_head_dim",
        ),
        reads=(
            "qk_head_dim",
            "layer_types",
            "linear_attn_config",
            "linear_head_dim",
            "linear_num_heads",
            "linear_conv_kernel_dim",
            "mla_use_nope",
            "mamba_ssm_dtype",
        ),
        ignores=("head_dim", "num_key_value_heads", "q_lora_rank", *ROPE_READS, *MOE_IGNORES, *MTP_IGNORES),
        positions="model_max_length",
    ),
    "falcon_h1": Family(
        _falcon_h1,
        needs=("num_hidden_layers", *HEADS, "mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"),
        reads=(
            "head_dim",
            "hidden_size",
            "mamba_d_ssm",
            "mamba_expand",
            "mamba_d_head",
            "mamba_ssm_dtype",
            *ROPE_READS,
        ),
        ignores=words(
            "num_logits_to_keep mamba_chunk_size mamba_conv_bias mamba_proj_bias mamba_norm_before_gate mamba_rms_norm "
            "mamba_use_mlp projectors_bias time_step_limit time_step_floor time_step_max time_step_min "
            "lm_head_multiplier embedding_multiplier mlp_multipliers mlp_expansion_factor key_multiplier "
            "attention_out_multiplier attention_in_multiplier ssm_multipliers ssm_in_multiplier ssm_out_multiplier "
            "attn_layer_indices layers_block_type layer_types"
        ),
        defaults={"rope_theta": 10_000},
    ),
    "minimax": Family(
        _minimax,
        needs=("num_hidden_layers", *HEADS),
        reads=("head_dim", "hidden_size", "sliding_window", "layer_types", *ROPE_READS),
        ignores=(
            "block_size",
            *(f"{kind}_{part}_factor" for kind in ("full_attn", "linear_attn", "mlp") for part in ("alpha", "beta")),
            *MOE_IGNORES,
        ),
        defaults={"rope_theta": 1_000_000},
    ),
}
