"""From a layer of the schema to the dimensions that one rank keeps."""

import math
from collections.abc import Callable
from typing import Any

from kvc.encodings import StateTensor
from kvc.specs import layer_models as models
from kvc.specs import resolved
from kvc.specs.rope_models import Rope, YarnRope

_ROPE_OWN = {"kind", "theta", "dim", "layout"}


def split_heads(heads: int, ranks: int) -> int:
    """Heads of one rank: an equal part, or one copied head where there are more ranks than heads."""
    return max(heads // ranks, 1)


def _rope(rope: Rope, width: int) -> resolved.Rope | None:
    if rope == "none":
        return None
    own = rope.model_dump(exclude_none=True, exclude=_ROPE_OWN)
    if own.get("truncate") is True:  # what every reader of the numbers takes for granted
        del own["truncate"]
    params = tuple(sorted((name, float(value)) for name, value in own.items()))
    return resolved.Rope(rope.kind, rope.layout, rope.dim or width, float(rope.theta), params)


def _gqa(layer: models.GqaLayer, ranks: int, _drafted: int) -> resolved.GqaShape:
    return resolved.GqaShape(
        heads=layer.heads // ranks,
        kv_heads=split_heads(layer.kv_heads, ranks),
        head_dim=layer.head_dim,
        v_head_dim=layer.v_head_dim or layer.head_dim,
        softmax_scale=float(layer.softmax_scale or 1 / math.sqrt(layer.head_dim)),
        rope=_rope(layer.rope, layer.head_dim),
        softcap=layer.softcap,
        sink_logits=layer.sink_logits,
        shares_kv_of=layer.shares_kv_of,
    )


def _yarn_scale(rope: Rope) -> float:
    """What YaRN multiplies the softmax scale of latent attention by."""
    if not isinstance(rope, YarnRope) or not rope.mscale_all_dim:
        return 1.0
    mscale: float = 0.1 * rope.mscale_all_dim * math.log(rope.factor) + 1
    return mscale * mscale


def _indexer(indexer: models.Indexer | None) -> resolved.IndexerShape | None:
    return resolved.IndexerShape(**indexer.model_dump()) if indexer else None


def _dsa_indexer(layer: models.DsaLayer) -> resolved.IndexerShape:
    """No layout where nothing of the indexer is rotated."""
    rotates = layer.rope != "none" and not layer.indexer.shared
    return resolved.IndexerShape(
        **{**layer.indexer.model_dump(), "rope_layout": layer.indexer.rope_layout if rotates else None}
    )


def _mla(layer: models.MlaLayer | models.DsaLayer, ranks: int, _drafted: int) -> resolved.MlaShape:
    width = layer.qk_nope_head_dim + layer.qk_rope_head_dim
    return resolved.MlaShape(
        heads=layer.heads // ranks,
        kv_lora_rank=layer.kv_lora_rank,
        qk_nope_head_dim=layer.qk_nope_head_dim,
        qk_rope_head_dim=layer.qk_rope_head_dim,
        v_head_dim=layer.v_head_dim,
        softmax_scale=float(layer.softmax_scale or _yarn_scale(layer.rope) / math.sqrt(width)),
        rope=_rope(layer.rope, layer.qk_rope_head_dim),
        indexer=_dsa_indexer(layer) if isinstance(layer, models.DsaLayer) else None,
        kind=layer.kind,
    )


def _compressor(layer: models.DeepseekV4Layer, drafted: int) -> resolved.CompressorShape | None:
    """Tokens that wait are one group, with the group before it where rows overlap, and those that may be rolled back.

    An overlapping compressor projects two rows a token, one for its own group and one for the next.
    """
    compressor = layer.compressor
    if compressor is None:
        return None
    groups = 2 if compressor.overlap else 1
    widths = {"compressor": layer.head_dim} | ({"indexer": layer.indexer.head_dim} if layer.indexer else {})
    states = tuple(
        StateTensor(f"{owner}.{part}", (groups * compressor.ratio + drafted, groups * width), compressor.state_dtype)
        for owner, width in widths.items()
        for part in ("kv", "gate")
    )
    return resolved.CompressorShape(compressor.ratio, compressor.overlap, states)


def _deepseek_v4(layer: models.DeepseekV4Layer, ranks: int, drafted: int) -> resolved.DeepseekV4Shape:
    return resolved.DeepseekV4Shape(
        heads=layer.heads // ranks,
        head_dim=layer.head_dim,
        qk_rope_head_dim=layer.qk_rope_head_dim,
        window=layer.window,
        softmax_scale=float(layer.softmax_scale or 1 / math.sqrt(layer.head_dim)),
        rope=_rope(layer.rope, layer.qk_rope_head_dim),
        sink_logits=layer.sink_logits,
        compressor=_compressor(layer, drafted),
        indexer=_indexer(layer.indexer),
    )


def _mamba2_states(layer: models.Mamba2Layer, ranks: int) -> tuple[StateTensor, ...]:
    heads, groups = layer.heads // ranks, split_heads(layer.groups, ranks)
    channels = heads * layer.head_dim + 2 * groups * layer.state_dim
    return (
        StateTensor("conv", (channels, layer.conv_kernel - 1), layer.conv_dtype, 0),
        StateTensor("ssm", (heads, layer.head_dim, layer.state_dim), layer.state_dtype, 0),
    )


def _gated_delta_net_states(layer: models.GatedDeltaNetLayer, ranks: int) -> tuple[StateTensor, ...]:
    keys, values = layer.key_heads // ranks, layer.value_heads // ranks
    channels = 2 * keys * layer.key_head_dim + values * layer.value_head_dim
    return (
        StateTensor("conv", (channels, layer.conv_kernel - 1), layer.conv_dtype, 0),
        StateTensor("delta", (values, layer.key_head_dim, layer.value_head_dim), layer.state_dtype, 0),
    )


def _kda_states(layer: models.KdaLayer, ranks: int) -> tuple[StateTensor, ...]:
    heads = layer.heads // ranks
    shape = (heads * layer.head_dim, layer.conv_kernel - 1)
    convolutions = (StateTensor(f"conv_{name}", shape, layer.conv_dtype, 0) for name in "qkv")
    return (*convolutions, StateTensor("delta", (heads, layer.head_dim, layer.head_dim), layer.state_dtype, 0))


def _other_states(layer: models.OtherRecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    def one(state: models.State) -> StateTensor:
        shape = tuple(size // ranks if axis == state.sharded else size for axis, size in enumerate(state.shape))
        return StateTensor(state.name, shape, state.dtype, state.sharded)

    return tuple(map(one, layer.states))


_STATES: dict[type, Callable[[Any, int], tuple[StateTensor, ...]]] = {
    models.Mamba2Layer: _mamba2_states,
    models.GatedDeltaNetLayer: _gated_delta_net_states,
    models.KdaLayer: _kda_states,
    models.OtherRecurrentLayer: _other_states,
}


def _recurrent(layer: models.RecurrentLayer, ranks: int, _drafted: int) -> resolved.RecurrentShape:
    return resolved.RecurrentShape(layer.variant, _STATES[type(layer)](layer, ranks))


_SHAPES: dict[type, Callable[[Any, int, int], resolved.Shape]] = {
    models.GqaLayer: _gqa,
    models.MlaLayer: _mla,
    models.DsaLayer: _mla,
    models.DeepseekV4Layer: _deepseek_v4,
    **dict.fromkeys(_STATES, _recurrent),
}


def shape_of(layer: models.Layer, ranks: int, drafted: int) -> resolved.Shape:
    """Dimensions of a layer on one of ``ranks``; ``drafted`` tokens a step may be rolled back."""
    return _SHAPES[type(layer)](layer, ranks, drafted)


def _gqa_coverage(layer: models.GqaLayer) -> resolved.Coverage:
    if layer.chunk is not None:
        return resolved.Coverage("chunk", layer.chunk)
    if layer.window is not None:
        return resolved.Coverage("window", layer.window, layer.keep_first)
    return resolved.Coverage()


def _v4_coverage(layer: models.DeepseekV4Layer) -> resolved.Coverage:
    if layer.compressor is None:
        return resolved.Coverage("window", layer.window)
    return resolved.Coverage("compressed", ratio=layer.compressor.ratio)


_COVERAGES: dict[type, Callable[[Any], resolved.Coverage]] = {
    models.GqaLayer: _gqa_coverage,
    models.DeepseekV4Layer: _v4_coverage,
    **dict.fromkeys(_STATES, lambda _layer: resolved.Coverage("recurrent")),
}


def coverage_of(layer: models.Layer) -> resolved.Coverage:
    """Which tokens the layer's history keeps."""
    return _COVERAGES.get(type(layer), lambda _layer: resolved.Coverage())(layer)


def shards_of(layer: models.Layer, ranks: int) -> int:
    """Ranks that hold different parts of the layer's cache: a latent is one row for all heads, so one."""
    if isinstance(layer, models.GqaLayer):
        return min(layer.kv_heads, ranks)
    return ranks if isinstance(layer, models.RecurrentLayer) else 1


def capability_name(layer: models.Layer) -> str:
    """Kind, and variant where there are several, as in the capability tables."""
    variant = getattr(layer, "variant", None)
    return f"{layer.kind} {variant}" if variant else layer.kind
