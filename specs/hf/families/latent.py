"""Families with latent attention: DeepSeek V2 to V4, Kimi K2, GLM-5, LongCat."""

from functools import partial
from typing import Any

from kvc.specs.hf.config import Config, Derived
from kvc.specs.hf.families.family import ROPE_READS, Family
from kvc.specs.hf.families.ignored import LATENT_IGNORES, MOE_IGNORES, MTP_IGNORES, words
from kvc.specs.hf.layers import SLIDING, by_name, check_length, every_layer, layer_names, mla
from kvc.specs.hf.rope import RopeRule, Site, rope
from kvc.specs.suggestions import listed

_PAIRS = RopeRule(layout="interleaved")
_MLA_NEEDS = ("num_attention_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_MLA_READS = ("qk_head_dim", *ROPE_READS)
_INDEXER_NEEDS = ("index_n_heads", "index_head_dim", "index_topk")
_IGNORES = (*LATENT_IGNORES, *MOE_IGNORES, *MTP_IGNORES)
_INDEXED = "indexed_attention"


def _dense(config: Config) -> list[Derived]:
    """Rotated features in pairs, unless `rope_interleave` says that halves are paired."""
    rule = _PAIRS if config.get("rope_interleave", True) else RopeRule()
    return every_layer(config, mla, rule)


def _longcat(config: Config) -> list[Derived]:
    """Each layer has two attention blocks with a cache of their own."""
    blocks = 2 * config.need("num_layers")
    if config.get("num_hidden_layers") not in (None, blocks, blocks // 2):
        message = f"`num_hidden_layers` {config.get('num_hidden_layers')} fits neither num_layers nor twice that"
        raise config.contradiction(message, "num_hidden_layers", "remove it: the family counts `num_layers`")
    config.note("two caches a layer of the model: it has two attention blocks")
    return [config.derive(mla, _PAIRS)] * blocks


def indexer(config: Config, shared: bool = False) -> dict[str, Any]:
    """What chooses the tokens that are read; its keys are stored as existing kernels have them where they fit."""
    width = config.need("index_head_dim")
    made = {
        "heads": config.need("index_n_heads"),
        "head_dim": width,
        "top_k": config.need("index_topk"),
        "encoding": "bf16" if width % 128 else "index_key",
    }
    return {**made, "shared": True} if shared else made


def _sparse(config: Config, shared: bool, layout: str) -> dict[str, Any]:
    """``layout``: which features of index queries and keys RoPE pairs; that of attention itself is interleaved."""
    layer = mla(config, _PAIRS)
    del layer["kind"]
    rotary = {} if shared else {"rope_layout": layout}
    return {"kind": "mla_sparse", "variant": "dsa", **layer, "indexer": {**indexer(config, shared), **rotary}}


def _deepseek_v32(config: Config) -> list[Derived]:
    layer_names(config, lambda: [], (_INDEXED,))
    return every_layer(config, _sparse, False, "half")


def _pattern(config: Config) -> list[str] | None:
    """`index_topk_pattern`: F for a layer with an indexer, S for one that shares the nearest earlier one's choice."""
    given = config.get("index_topk_pattern")
    return [{"F": "full", "S": "shared"}.get(entry, entry) for entry in given] if given else None


def _indexer_types(config: Config) -> list[str]:
    name = "indexer_types" if config.has("indexer_types") else "index_topk_pattern"
    types: list[str] | None = config.get("indexer_types") or _pattern(config)
    if types is None:
        every, offset = max(config.get("index_topk_freq", 1), 1), config.get("index_skip_topk_offset", 2)
        count = config.need("num_hidden_layers")
        return ["shared" if max(index - offset + 1, 0) % every else "full" for index in range(count)]
    check_length(config, name, types)
    if strange := [entry for entry in types if entry not in ("full", "shared")]:
        message = f"`{name}` names `{strange[0][:40]}`, which this family does not have"
        raise config.contradiction(message, name, f"supported: {listed(('full', 'shared'))}")
    return types


def _glm_moe_dsa(config: Config) -> list[Derived]:
    layer_names(config, lambda: [], (_INDEXED, "deepseek_sparse_attention"))
    types = config.derive(_indexer_types)
    layout = "interleaved" if config.get("indexer_rope_interleave", True) else "half"
    made = {kind: config.derive(_sparse, kind == "shared", layout) for kind in dict.fromkeys(types.value)}
    source = tuple(name for name in types.fields if name.startswith("index"))
    named = {kind: Derived(one.value, (*one.fields, *source), one.notes) for kind, one in made.items()}
    return by_name(types.value, named)


# What V4 calls its layers -> (number in `compress_ratios`, field of `compress_rates`' older form, default ratio).
_CSA, _HCA = "compressed_sparse_attention", "heavily_compressed_attention"
_V4_RATIOS = {0: SLIDING, 4: _CSA, 128: _HCA}
_V4_RATES = {_CSA: ("compress_rate_csa", 4), _HCA: ("compress_rate_hca", 128)}


def _v4_names(config: Config) -> list[str]:
    """By `compress_ratios`, which may go on with multi-token prediction; or two heavy ones, then by turns."""
    count, ratios = config.need("num_hidden_layers"), config.get("compress_ratios")
    if ratios is None:
        return [_HCA if index < 2 or index % 2 == 0 else _CSA for index in range(count)]
    ratios = ratios[:count]
    check_length(config, "compress_ratios", ratios)
    if strange := [ratio for ratio in ratios if ratio not in _V4_RATIOS]:
        message = f"`compress_ratios` has {strange[0]}, which this family does not have"
        raise config.contradiction(message, "compress_ratios", f"supported: {listed(_V4_RATIOS)}")
    return [_V4_RATIOS[ratio] for ratio in ratios]


def _v4_rotated(config: Config) -> int:
    width = config.need("head_dim")
    given: int | None = config.get("qk_rope_head_dim")
    return given or int(width * config.get("partial_rotary_factor", 64 / 512))


def _v4_rope(config: Config, width: int, compressed: bool) -> dict[str, Any]:
    """Layers with compressed rows have a base of their own, and alone the scaling; YaRN without its factor."""
    rule = RopeRule("interleaved", ignores=frozenset(("partial_rotary_factor",)))
    site = Site("compress", "compress_rope_theta") if compressed else Site("main", scaled=False)
    made = rope(config, width, rule, site)
    if made["kind"] == "yarn":
        made.setdefault("attention_factor", 1.0)
    return made


def _v4_rate(config: Config, name: str) -> int:
    older, default = _V4_RATES[name]
    rates = config.inside("compress_rates")
    rates.check((name,))
    return int(config.get(older) or rates.get(name) or default)


def _v4_layer(config: Config, name: str) -> dict[str, Any]:
    rotated = _v4_rotated(config)
    layer = {
        "kind": "mla_sparse",
        "variant": "deepseek_v4",
        "heads": config.need("num_attention_heads"),
        "head_dim": config.need("head_dim"),
        "qk_rope_head_dim": rotated,
        "window": config.need("sliding_window"),
        "rope": _v4_rope(config, rotated, name != SLIDING),
        "sink_logits": True,
    }
    if name == SLIDING:
        return layer
    config.note(
        "not from the config: fp32 for tokens that wait to be compressed; whether rows overlap is the model's code"
    )
    overlap = {"overlap": True} if name == _CSA else {}
    layer["compressor"] = {"ratio": _v4_rate(config, name), **overlap, "state_dtype": "fp32"}
    return {**layer, "indexer": indexer(config)} if name == _CSA else layer


def _deepseek_v4(config: Config) -> list[Derived]:
    names = layer_names(config, partial(_v4_names, config), (SLIDING, *_V4_RATES))
    return by_name(names, {name: config.derive(_v4_layer, name) for name in dict.fromkeys(names)})


DEEPSEEK_V3 = Family(
    _dense,
    needs=("num_hidden_layers", *_MLA_NEEDS),
    reads=(*_MLA_READS, "rope_interleave"),
    ignores=_IGNORES,
    defaults={"rope_theta": 10_000},
)
FAMILIES = {
    "deepseek_v2": DEEPSEEK_V3,
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": DEEPSEEK_V3,
    "longcat_flash": Family(
        _longcat,
        needs=("num_layers", *_MLA_NEEDS),
        reads=("num_hidden_layers", *_MLA_READS),
        ignores=(
            "attention_method",
            "mla_scale_q_lora",
            "mla_scale_kv_lora",
            "ffn_hidden_size",
            "expert_ffn_hidden_size",
            "zero_expert_num",
            "zero_expert_type",
            *_IGNORES,
        ),
        defaults={"rope_theta": 10_000_000},
    ),
    "deepseek_v32": Family(
        _deepseek_v32,
        needs=("num_hidden_layers", *_MLA_NEEDS, *_INDEXER_NEEDS),
        reads=(*_MLA_READS, "layer_types"),
        ignores=_IGNORES,
        defaults={"rope_theta": 10_000},
    ),
    "glm_moe_dsa": Family(
        _glm_moe_dsa,
        needs=("num_hidden_layers", *_MLA_NEEDS, *_INDEXER_NEEDS),
        reads=(
            *_MLA_READS,
            "layer_types",
            "indexer_types",
            "index_topk_pattern",
            "index_topk_freq",
            "index_skip_topk_offset",
            "indexer_rope_interleave",
        ),
        ignores=("rope_interleave", *_IGNORES),
        defaults={"rope_theta": 10_000},
    ),
    "deepseek_v4": Family(
        _deepseek_v4,
        needs=("num_hidden_layers", "num_attention_heads", "head_dim", "sliding_window", *_INDEXER_NEEDS),
        reads=(
            "qk_rope_head_dim",
            "partial_rotary_factor",
            "layer_types",
            "compress_ratios",
            "compress_rates",
            "compress_rate_csa",
            "compress_rate_hca",
            "compress_rope_theta",
            *ROPE_READS,
        ),
        ignores=(
            "q_lora_rank",
            "num_key_value_heads",
            *MOE_IGNORES,
            *MTP_IGNORES,
            *words("o_groups o_lora_rank hc_mult hc_eps hc_sinkhorn_iters num_hash_layers expert_dtype"),
        ),
        defaults={"rope_theta": 10_000, "compress_rope_theta": 160_000},
        tokens_per_page=256,
    ),
}
