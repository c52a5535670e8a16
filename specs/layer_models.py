"""The layer kinds of the schema: what a layer keeps of each token, or of the sequence as a whole.

A kind that comes in several forms (`mla_sparse`, `recurrent`) is a union told apart by `variant`.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from kvc.specs.model_types import Dimension, EncodingName, Model, Positions, Positive, kind_tag, tag
from kvc.specs.rope_models import Rope

Dtype = Literal["fp32", "bf16", "fp16"]
_Repeat = Annotated[int, Field(ge=1, description="how many such layers follow each other")]
_Window = Annotated[Positions, Field(description="tokens that a sliding window reads, its own among them")]
_Heads = Annotated[Dimension, Field(description="query heads")]
_RopeField = Annotated[Rope, Field(description="rotary embedding, or `none`")]
_StateDtype = Annotated[Dtype, Field(description="how the recurrent state is stored")]
_ConvDtype = Annotated[Dtype, Field(description="how the last inputs of the convolution are stored")]
_Kernel = Annotated[int, Field(ge=2, le=64, description="width of the causal convolution; its last width - 1 inputs")]


class GqaLayer(Model):
    """Grouped-query attention: K and V of ``kv_heads`` heads a token."""

    kind: Literal["gqa"]
    repeat: _Repeat = 1
    heads: _Heads
    kv_heads: Annotated[Dimension, Field(description="key and value heads; divides heads")]
    head_dim: Annotated[Dimension, Field(description="features of a query and key head")]
    v_head_dim: Annotated[Dimension, Field(description="features of a value head; default: head_dim")] | None = None
    rope: _RopeField
    softmax_scale: Annotated[Positive, Field(description="default: 1/sqrt(head_dim)")] | None = None
    window: _Window | None = None
    keep_first: Annotated[int, Field(ge=0, le=2**30, description="first tokens kept beside a window")] = 0
    chunk: Annotated[Positions, Field(description="attention inside chunks of so many tokens")] | None = None
    softcap: Annotated[Positive, Field(description="cap on attention scores")] | None = None
    sink_logits: Annotated[bool, Field(description="learned extra logits, one a head")] = False
    shares_kv_of: Annotated[int, Field(ge=0, description="earlier layer whose K and V it reads")] | None = None


class _Latent(Model):
    """What the kinds with a latent share; the latent and the rope part are one row for all heads."""

    repeat: _Repeat = 1
    heads: _Heads
    kv_lora_rank: Annotated[Dimension, Field(description="features of the latent")]
    qk_nope_head_dim: Annotated[Dimension, Field(description="features of a key head without rope, before absorption")]
    qk_rope_head_dim: Annotated[Dimension, Field(description="rotated features, shared by all heads")]
    v_head_dim: Annotated[Dimension, Field(description="features of a value head")]
    rope: _RopeField
    softmax_scale: (
        Annotated[Positive, Field(description="default: 1/sqrt(nope + rope), under YaRN times its mscale squared")]
        | None
    ) = None


class MlaLayer(_Latent):
    """Multi-head latent attention."""

    kind: Literal["mla"]


class Indexer(Model):
    """Scores every token to choose the ``top_k`` that attention reads; keeps one key a token, shared by its heads."""

    heads: Annotated[Dimension, Field(description="query heads of the indexer")]
    head_dim: Annotated[Dimension, Field(description="features of the index key")]
    top_k: Annotated[Positions, Field(description="tokens that attention reads")]
    encoding: Annotated[EncodingName, Field(description="how the index key is stored: index_key, bf16 or fp32")]
    shared: Annotated[
        bool, Field(description="takes the choice of the nearest earlier layer with an indexer and keeps no key")
    ] = False


class DsaIndexer(Indexer):
    """An indexer whose queries and key are rotated by the layer's RoPE, as many features of them, from the first on."""

    rope_layout: (
        Annotated[
            Literal["half", "interleaved"],
            Field(
                description="which features pair up; `layout` of the layer's rope says nothing of it: half in "
                "DeepSeek-V3.2, interleaved in GLM-5; needed where the layer has rope and the indexer is not shared"
            ),
        ]
        | None
    ) = None


class DsaLayer(_Latent):
    """DeepSeek sparse attention: `mla` over the rows that an indexer chooses."""

    kind: Literal["mla_sparse"]
    variant: Literal["dsa"]
    indexer: DsaIndexer


class Compressor(Model):
    """Makes one row of ``ratio`` tokens; keeps the tokens that are not compressed yet, values and gates."""

    ratio: Annotated[int, Field(ge=2, le=1024, description="source tokens of a compressed row")]
    overlap: Annotated[bool, Field(description="a row also reads the group before its own")] = False
    state_dtype: Annotated[Dtype, Field(description="how tokens waiting for compression are stored")]


class DeepseekV4Layer(Model):
    """A sliding window of plain rows and, where there is a compressor, compressed rows of everything."""

    kind: Literal["mla_sparse"]
    variant: Literal["deepseek_v4"]
    repeat: _Repeat = 1
    heads: _Heads
    head_dim: Annotated[Dimension, Field(description="features of the one key head, which is its value too")]
    qk_rope_head_dim: Annotated[Dimension, Field(description="rotated features among them")]
    window: _Window
    rope: _RopeField
    softmax_scale: Annotated[Positive, Field(description="default: 1/sqrt(head_dim)")] | None = None
    sink_logits: Annotated[bool, Field(description="learned extra logits, one a head")] = False
    compressor: Annotated[Compressor, Field(description="none: a window layer")] | None = None
    indexer: Annotated[Indexer, Field(description="chooses compressed rows; none: all of them")] | None = None


class _Recurrent(Model):
    """A state of fixed size a sequence."""

    kind: Literal["recurrent"]
    repeat: _Repeat = 1


class Mamba2Layer(_Recurrent):
    """Mamba-2."""

    variant: Literal["mamba2"]
    heads: Annotated[Dimension, Field(description="heads of the state space model")]
    head_dim: Dimension
    state_dim: Annotated[Dimension, Field(description="features of the state, `d_state`")]
    groups: Annotated[Dimension, Field(description="groups of B and C; divides heads")]
    conv_kernel: _Kernel
    state_dtype: _StateDtype
    conv_dtype: _ConvDtype


class GatedDeltaNetLayer(_Recurrent):
    """Gated delta net (Qwen3-Next)."""

    variant: Literal["gated_delta_net"]
    key_heads: Dimension
    value_heads: Annotated[Dimension, Field(description="a multiple of key_heads")]
    key_head_dim: Dimension
    value_head_dim: Dimension
    conv_kernel: _Kernel
    state_dtype: _StateDtype
    conv_dtype: _ConvDtype


class KdaLayer(_Recurrent):
    """Kimi delta attention: a convolution for each of q, k and v."""

    variant: Literal["kda"]
    heads: Dimension
    head_dim: Dimension
    conv_kernel: _Kernel
    state_dtype: _StateDtype
    conv_dtype: _ConvDtype


class State(Model):
    """One tensor of a sequence's state."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100)]
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**24)]], Field(min_length=1, max_length=8)]
    dtype: Dtype
    sharded: (
        Annotated[int, Field(ge=0, le=7, description="dimension that tensor parallelism divides; default: none")] | None
    ) = None


class OtherRecurrentLayer(_Recurrent):
    """Any other state, tensor by tensor."""

    variant: Literal["other"]
    states: Annotated[list[State], Field(min_length=1, max_length=16)]


AttentionLayer = GqaLayer | MlaLayer | DsaLayer | DeepseekV4Layer
RecurrentLayer = Mamba2Layer | GatedDeltaNetLayer | KdaLayer | OtherRecurrentLayer
Layer = AttentionLayer | RecurrentLayer


def _variant_tag(value: Any) -> str | None:
    return tag("variant", value)


_Sparse = Annotated[
    Annotated[DsaLayer, Tag("variant=dsa")] | Annotated[DeepseekV4Layer, Tag("variant=deepseek_v4")],
    Discriminator(_variant_tag),
]
_RecurrentUnion = Annotated[
    Annotated[Mamba2Layer, Tag("variant=mamba2")]
    | Annotated[GatedDeltaNetLayer, Tag("variant=gated_delta_net")]
    | Annotated[KdaLayer, Tag("variant=kda")]
    | Annotated[OtherRecurrentLayer, Tag("variant=other")],
    Discriminator(_variant_tag),
]


def _layer_tag(value: Any) -> str | None:
    is_group = isinstance(value, LayerGroup) or (isinstance(value, dict) and "layers" in value and "kind" not in value)
    return "group" if is_group else kind_tag(value)


class LayerGroup(Model):
    """Layers that repeat together."""

    repeat: Annotated[int, Field(ge=1)] = 1
    layers: Annotated[list["LayerEntry"], Field(min_length=1)]


# One layer, told apart by `kind` and `variant`.
OneLayer = Annotated[
    Annotated[GqaLayer, Tag("kind=gqa")]
    | Annotated[MlaLayer, Tag("kind=mla")]
    | Annotated[_Sparse, Tag("kind=mla_sparse")]
    | Annotated[_RecurrentUnion, Tag("kind=recurrent")],
    Discriminator(kind_tag),
]
LayerEntry = Annotated[
    Annotated[GqaLayer, Tag("kind=gqa")]
    | Annotated[MlaLayer, Tag("kind=mla")]
    | Annotated[_Sparse, Tag("kind=mla_sparse")]
    | Annotated[_RecurrentUnion, Tag("kind=recurrent")]
    | Annotated[LayerGroup, Tag("group")],
    Discriminator(_layer_tag),
]
