"""Families whose layers are alike, or full first and sliding after: Llama, Qwen, Mistral, Phi-3, GLM-4.5."""

from functools import partial

from kvc.specs.hf.config import Config, Derived
from kvc.specs.hf.families.family import HEADS, ROPE_READS, Family
from kvc.specs.hf.families.ignored import MOE_IGNORES, MTP_IGNORES
from kvc.specs.hf.layers import FULL, SLIDING, Gqa, by_name, every_layer, gqa, layer_names, sliding_size, window
from kvc.specs.hf.rope import RopeRule

_BY_HIDDEN = Gqa(head_rule=True)
_THETA = {"rope_theta": 10_000}
_QWEN_READS = (*ROPE_READS, "sliding_window", "use_sliding_window", "max_window_layers", "layer_types")


def _alike(config: Config, rule: Gqa) -> list[Derived]:
    return every_layer(config, gqa, rule)


def _windowed_gqa(config: Config, rule: Gqa, name: str = "sliding_window") -> dict[str, object]:
    return gqa(config, rule, window(config, name))


def _all_sliding(config: Config, rule: Gqa) -> list[Derived]:
    """Every layer has the window, if there is one."""
    return every_layer(config, _windowed_gqa, rule)


def _switched(config: Config) -> bool:
    """Whether windows are on. Raises KvcError (KVC157) where they are on and have no size."""
    if not config.get("use_sliding_window", False):
        return False
    sliding_size(config)
    return True


def _qwen_names(config: Config) -> list[str]:
    """The first `max_window_layers` layers are full."""
    first = config.need("max_window_layers") if _switched(config) else config.need("num_hidden_layers")
    return [FULL if index < first else SLIDING for index in range(config.need("num_hidden_layers"))]


def _qwen(config: Config, rule: Gqa) -> list[Derived]:
    names = layer_names(config, partial(_qwen_names, config), (FULL, SLIDING))
    if SLIDING in names and not _switched(config):
        message = "`layer_types` has sliding layers, and `use_sliding_window` is not true"
        raise config.contradiction(message, "layer_types", "set use_sliding_window, or make all layers full_attention")
    made = {FULL: config.derive(gqa, rule)}
    if SLIDING in names:
        made[SLIDING] = config.derive(_windowed_gqa, rule)
    return by_name(names, made)


def _qwen3_moe(config: Config) -> list[Derived]:
    return _all_sliding(config, _BY_HIDDEN) if _switched(config) else _alike(config, _BY_HIDDEN)


LLAMA = Family(
    partial(_alike, rule=Gqa(head_rule=True, exact=True)),
    needs=("num_hidden_layers", "num_attention_heads"),
    reads=("num_key_value_heads", "head_dim", "hidden_size", *ROPE_READS),
    ignores=("rope_interleaved", "is_llama_config"),
    defaults=_THETA,
)
QWEN2 = Family(
    partial(_qwen, rule=_BY_HIDDEN),
    needs=("num_hidden_layers", *HEADS),
    reads=("head_dim", "hidden_size", *_QWEN_READS),
    ignores=("use_mrope",),
    defaults=_THETA,
)
QWEN3 = Family(
    partial(_qwen, rule=Gqa()),
    needs=("num_hidden_layers", *HEADS, "head_dim"),
    reads=_QWEN_READS,
    defaults=_THETA,
)
QWEN3_MOE = Family(
    _qwen3_moe,
    needs=("num_hidden_layers", *HEADS),
    reads=("head_dim", "hidden_size", *ROPE_READS, "sliding_window", "use_sliding_window"),
    ignores=("max_window_layers", *MOE_IGNORES),
    defaults=_THETA,
)
MISTRAL = Family(
    partial(_all_sliding, rule=_BY_HIDDEN),
    needs=("num_hidden_layers", *HEADS),
    reads=("head_dim", "hidden_size", "sliding_window", *ROPE_READS),
    defaults=_THETA,
)
PHI3 = Family(
    partial(_all_sliding, rule=Gqa(RopeRule(partial=1.0), head_rule=True)),
    needs=("num_hidden_layers", "num_attention_heads"),
    reads=(
        "num_key_value_heads",
        "head_dim",
        "hidden_size",
        "sliding_window",
        "partial_rotary_factor",
        "original_max_position_embeddings",
        *ROPE_READS,
    ),
    ignores=("embd_layer", "full_attn_mod", "interpolate_factor", "lm_head_bias"),
    defaults=_THETA,
)
GLM4_MOE = Family(
    partial(_alike, rule=Gqa(RopeRule(partial=0.5), head_rule=True)),
    needs=("num_hidden_layers", *HEADS),
    reads=("head_dim", "hidden_size", "partial_rotary_factor", *ROPE_READS),
    ignores=(*MOE_IGNORES, *MTP_IGNORES),
    defaults=_THETA,
)
FAMILIES = {
    "llama": LLAMA,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "mistral": MISTRAL,
    "phi3": PHI3,
    "glm4_moe": GLM4_MOE,
}
