"""The schema of a spec file.

Values are taken as they are (strict types, no unknown fields); what they mean together is judged in `checks.py`, so
that every refusal can name a supported choice. Options that this version cannot compile are part of the schema where
the design fixes their form.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_serializer

from kvc.capabilities import ARCHS, PAGE_SIZES, PASSES
from kvc.encodings import ENCODINGS
from kvc.specs.sizes import BadValue, parse_layers, parse_size


class Model(BaseModel):
    """What all parts of a spec share: immutable, no unknown fields, no conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _tag(field: str, value: Any) -> str | None:
    """The union tag of ``value``: `kind=gqa`. Never a key of a document, so positions cannot be confused by it."""
    chosen = value.get(field) if isinstance(value, dict) else getattr(value, field, None)
    return f"{field}={chosen}" if isinstance(chosen, str) else None


def _kind_tag(value: Any) -> str | None:
    return _tag("kind", value)


def _rope_tag(value: Any) -> str | None:
    return f"kind={value}" if isinstance(value, str) else _kind_tag(value)


def _source_tag(value: Any) -> str | None:
    return _tag("source", value)


def _layer_tag(value: Any) -> str | None:
    is_group = isinstance(value, LayerGroup) or (isinstance(value, dict) and "layers" in value and "kind" not in value)
    return "group" if is_group else _kind_tag(value)


def _number_tag(value: Any) -> str:
    return "list" if isinstance(value, list) else "number"


def _size(value: Any) -> Any:
    return parse_size(value) if isinstance(value, str) else value


def _layers(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        parse_layers(text)
    return text


def _version(value: Any) -> Any:
    if type(value) is not int or value != 1:  # Literal[1] alone takes true and 1.0 for it
        raise BadValue(
            "`kvc`, the version of the format, must be 1", "write `kvc: 1`; a newer format needs a newer kvc"
        )
    return value


def _choice(*names: str) -> Any:
    """Text whose choices editors should offer; a wrong one is judged by `checks.py`."""
    return Field(json_schema_extra={"enum": list(names)})


_SIZE_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9.]+ ?[kKMGT]?i?B?$"}]}
_LAYERS_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9, -]+$"}]}

Dimension = Annotated[int, Field(ge=1, le=65_536)]
Positions = Annotated[int, Field(ge=1, le=2**30)]
Positive = Annotated[float, Field(gt=0, le=1e30)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0, le=2**60), WithJsonSchema(_SIZE_SCHEMA)]
LayerRanges = Annotated[str, BeforeValidator(_layers), WithJsonSchema(_LAYERS_SCHEMA)]
EncodingName = Annotated[str, _choice(*ENCODINGS)]
# A scale and its reciprocal must both be normal fp32 numbers, and its product with 448, the largest code, finite.
Scale = Annotated[float, Field(ge=2.0**-126, le=2.0**119)]


class _Rope(Model):
    """What every rotary embedding has."""

    theta: Annotated[
        float, Field(gt=1, le=1e30, description="base of the frequencies, `rope_theta` of a Hugging Face config")
    ]
    dim: (
        Annotated[Dimension, Field(description="rotated features a head, the rest passes; default: head_dim")] | None
    ) = None
    layout: Annotated[
        Literal["half", "interleaved"],
        Field(description="half: feature i pairs with i + dim/2 (Llama, Qwen); interleaved: 2i pairs with 2i + 1"),
    ] = "half"


class DefaultRope(_Rope):
    """Plain RoPE."""

    kind: Literal["default"]


class LinearRope(_Rope):
    """Positions divided by ``factor``."""

    kind: Literal["linear"]
    factor: Positive


class Llama3Rope(_Rope):
    """Llama 3.1 scaling: low frequencies divided by ``factor``, high ones kept, a ramp between."""

    kind: Literal["llama3"]
    factor: Positive
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_position: Positions


class YarnRope(_Rope):
    """YaRN: interpolation by frequency, and a factor on cos and sin."""

    kind: Literal["yarn"]
    factor: Positive
    original_max_position: Positions
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    mscale: Positive | None = None
    mscale_all_dim: Positive | None = None
    attention_factor: Positive | None = None


Rope = Annotated[
    Annotated[Literal["none"], Tag("kind=none")]
    | Annotated[DefaultRope, Tag("kind=default")]
    | Annotated[LinearRope, Tag("kind=linear")]
    | Annotated[Llama3Rope, Tag("kind=llama3")]
    | Annotated[YarnRope, Tag("kind=yarn")],
    Discriminator(_rope_tag),
]


class GqaLayer(Model):
    """Grouped-query attention: K and V of ``kv_heads`` heads a token."""

    kind: Literal["gqa"]
    repeat: Annotated[int, Field(ge=1, description="how many such layers follow each other")] = 1
    heads: Annotated[Dimension, Field(description="query heads")]
    kv_heads: Annotated[Dimension, Field(description="key and value heads; divides heads")]
    head_dim: Annotated[Dimension, Field(description="features of a query and key head")]
    v_head_dim: Annotated[Dimension, Field(description="features of a value head; default: head_dim")] | None = None
    rope: Annotated[Rope, Field(description="rotary embedding, or `none`")]
    softmax_scale: Annotated[Positive, Field(description="default: 1/sqrt(head_dim)")] | None = None
    window: Annotated[Positions, Field(description="tokens a sliding window reads (refused so far)")] | None = None
    keep_first: Annotated[int, Field(ge=0, description="first tokens kept beside a window (refused so far)")] = 0
    chunk: Annotated[Positions, Field(description="chunked attention (refused so far)")] | None = None
    softcap: Annotated[Positive, Field(description="cap on attention scores (refused so far)")] | None = None
    sink_logits: Annotated[bool, Field(description="learned extra logits (refused so far)")] = False
    shares_kv_of: Annotated[int, Field(ge=0, description="layer whose K and V it reads (refused so far)")] | None = None


class LayerGroup(Model):
    """Layers that repeat together."""

    repeat: Annotated[int, Field(ge=1)] = 1
    layers: Annotated[list["LayerEntry"], Field(min_length=1)]


LayerEntry = Annotated[
    Annotated[GqaLayer, Tag("kind=gqa")] | Annotated[LayerGroup, Tag("group")],
    Discriminator(_layer_tag),
]


class Architecture(Model):
    """The attention layers of a model, in order."""

    dtype: Annotated[Literal["bf16", "fp16", "fp32"], Field(description="activation dtype")]
    max_position: Annotated[Positions, Field(description="positions the model was made for")]
    layers: Annotated[list[LayerEntry], Field(min_length=1)]


ScaleNumbers = Annotated[
    Annotated[Scale, Tag("number")] | Annotated[list[Scale], Field(min_length=1), Tag("list")],
    Discriminator(_number_tag),
]


class UnitScales(Model):
    """Every scale is 1.0."""

    source: Literal["unit"]


class ScaleValues(Model):
    """Scales of a field: one number for all layers, or a list with one a layer."""

    k: ScaleNumbers
    v: ScaleNumbers


class GivenScales(Model):
    """Scales written in the spec (value = code * scale)."""

    source: Literal["values"]
    values: ScaleValues


Scales = Annotated[
    Annotated[UnitScales, Tag("source=unit")] | Annotated[GivenScales, Tag("source=values")],
    Discriminator(_source_tag),
]


class Retain(Model):
    """First and last tokens kept in a second, more precise pool."""

    first: Annotated[int, Field(ge=0, le=2**30)]
    last: Annotated[int, Field(ge=0, le=2**30)]
    encoding: EncodingName
    unit: Literal["token", "page"] = "token"
    scales: Scales | None = None


class Override(Model):
    """Storage of some layers that differs from the rest."""

    layers: Annotated[LayerRanges, Field(description='layer numbers from 0, both ends included: "0-2,60"')]
    encoding: EncodingName | None = None
    scales: Scales | None = None
    retain: Retain | None = None

    @model_serializer(mode="wrap")
    def _keep_null(self, handler: Any) -> dict[str, Any]:
        """`retain: null` takes the cache's away: unlike other defaults it must survive a dump without defaults."""
        values: dict[str, Any] = handler(self)
        return {**values, "retain": values.get("retain")} if "retain" in self.model_fields_set else values


class Cache(Model):
    """How the history of every layer is stored."""

    encoding: Annotated[EncodingName, Field(description="how a row is stored")]
    tokens_per_page: Annotated[int, Field(json_schema_extra={"enum": list(PAGE_SIZES)}, description="a power of two")]
    scales: Annotated[Scales, Field(description="required by encodings with scales; never implicit")] | None = None
    retain: Retain | None = None
    overrides: list[Override] = []


class Attention(Model):
    """How prefill attention is computed."""

    context: Literal["act", "fp8"] = "act"


class Draft(Model):
    """Speculative decoding layers (refused so far)."""

    kind: Literal["mtp", "eagle", "model"]
    layers: Annotated[int, Field(ge=1, le=1024)]
    max_draft_tokens: Annotated[int, Field(ge=1, le=1024)]
    encoding: EncodingName
    pool: Literal["auto", "target", "own"] = "auto"
    tokens_per_page: int | None = None


class Memory(Model):
    """Device memory: the cache may take ``(device - reserve) * free_fraction`` bytes."""

    device: Annotated[Bytes, Field(description="139GiB, 16GB or bytes (GB = 10**9, GiB = 2**30)")]
    free_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    reserve: Annotated[Bytes, Field(description="bytes kept for weights and activations")] = 0


class Target(Model):
    """What the compiled program must serve."""

    device: Literal["cpu", "cuda"]
    arch: Annotated[str, _choice(*ARCHS)] | None = None
    max_sequences: Annotated[int, Field(ge=1, le=65_536, description="sequences of one step")]
    max_seq_len: Annotated[Positions, Field(description="tokens of one sequence")]
    max_tokens: Annotated[int, Field(ge=1, le=2**24, description="tokens of one step")]
    buckets: (
        Annotated[
            list[Annotated[int, Field(ge=1)]],
            Field(min_length=1, description="sequences a captured generation step is padded to; default: powers of 2"),
        ]
        | None
    ) = None


class Compile(Model):
    """What compilation must achieve."""

    require: Annotated[
        list[Annotated[str, _choice(*(row.name for row in PASSES if row.available))]],
        Field(description="passes that must fire; otherwise compilation fails"),
    ] = []


class Spec(Model):
    """A KV cache to compile: the model's attention layers and how their history is stored."""

    kvc: Annotated[Literal[1], BeforeValidator(_version), Field(description="version of this format")]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100)]
    model: Architecture
    cache: Cache
    attention: Attention = Attention()
    draft: Draft | None = None
    memory: Memory | None = None
    target: Target
    compile: Compile = Compile()
