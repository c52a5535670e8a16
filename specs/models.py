"""The schema of a spec file.

Values are taken as they are (strict types, no unknown fields); what they mean together is judged in `checks/`, so
that every refusal can name a supported choice. What can be planned and what can be compiled differ: the schema holds
everything that can be planned.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_serializer

from kvc.capabilities import ARCHS, LAYER_CAPABILITIES, PAGE_SIZES, PASSES, STAGED_KINDS
from kvc.specs.layer_models import LayerEntry, OneLayer
from kvc.specs.model_types import (
    Bytes,
    EncodingName,
    LayerRanges,
    Model,
    Positions,
    Positive,
    Scale,
    TensorName,
    choice,
    tag,
)
from kvc.specs.sizes import BadValue
from kvc.specs.suggestions import listed


def _source_tag(value: Any) -> str | None:
    return tag("source", value)


def _number_tag(value: Any) -> str:
    return "list" if isinstance(value, list) else "number"


def _version(value: Any) -> Any:
    if type(value) is not int or value != 1:  # Literal[1] alone takes true and 1.0 for it
        raise BadValue(
            "`kvc`, the version of the format, must be 1", "write `kvc: 1`; a newer format needs a newer kvc"
        )
    return value


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
    """Scales of a field: one number for all layers, or a list with one a layer.

    `k` and `v` are fields of `gqa` layers, `latent` and `rope` of `mla` ones, `q`, `k` and `v` of context attention.
    """

    q: ScaleNumbers | None = None
    k: ScaleNumbers | None = None
    v: ScaleNumbers | None = None
    latent: ScaleNumbers | None = None
    rope: ScaleNumbers | None = None


class GivenScales(Model):
    """Scales written in the spec (value = code * scale)."""

    source: Literal["values"]
    values: ScaleValues


class ScaleNames(Model):
    """What a checkpoint calls the scales of a field; fields as in `ScaleValues`."""

    q: TensorName | None = None
    k: TensorName | None = None
    v: TensorName | None = None
    latent: TensorName | None = None
    rope: TensorName | None = None


class CheckpointScales(Model):
    """Scales read from the model's checkpoint, one tensor a layer and field, when a cache is allocated."""

    source: Literal["checkpoint"]
    names: Annotated[ScaleNames, Field(description="where the checkpoint has other names than the usual ones")] = (
        ScaleNames()
    )


Scales = Annotated[
    Annotated[UnitScales, Tag("source=unit")]
    | Annotated[GivenScales, Tag("source=values")]
    | Annotated[CheckpointScales, Tag("source=checkpoint")],
    Discriminator(_source_tag),
]


class Retain(Model):
    """First and last tokens kept in a second, more precise pool (a twin)."""

    first: Annotated[int, Field(ge=0, le=2**30, description="first tokens of a sequence")]
    last: Annotated[int, Field(ge=0, le=2**30, description="last tokens before a step")]
    encoding: (
        Annotated[EncodingName, Field(description="of the twin; left out where the cache's encoding names both")] | None
    ) = None
    unit: Annotated[
        Literal["token", "page"], Field(description="what is read from the twin, in whole pages or not")
    ] = "token"
    scales: Annotated[Scales, Field(description="of the twin, where its encoding needs them")] | None = None

    @property
    def keeps_tokens(self) -> bool:
        """Whether there is a twin: what retains nothing has none, whatever else it says."""
        return self.first + self.last > 0


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


_FP8_KINDS = listed(dict.fromkeys(row.kind for row in LAYER_CAPABILITIES if "fp8" in row.context))


class Attention(Model):
    """Who computes attention, and how prefill attention is computed."""

    kernel: Annotated[
        Literal["kvc", "engine"],
        Field(
            description="`kvc`: attention is part of the program; `engine`: an engine brings its own, and the program "
            f"stages the history of the target's layers for it (kinds {listed(STAGED_KINDS)})"
        ),
    ] = "kvc"

    context: Annotated[
        Literal["act", "fp8"],
        Field(
            description="Q, K and V: `act`, in the activation dtype; `fp8`, under `scales`, compiled for "
            f"layers of kind {_FP8_KINDS} alone"
        ),
    ] = "act"
    scales: Annotated[Scales, Field(description="of q, k and v; required by fp8")] | None = None


class Draft(Model):
    """Speculative decoding layers: caches of their own, in a domain of their own."""

    kind: Literal["mtp", "eagle", "model"]
    layers: Annotated[int, Field(ge=1, le=1024, description="draft layers with a cache")]
    max_draft_tokens: Annotated[int, Field(ge=1, le=1024, description="tokens that a step may roll back")]
    encoding: Annotated[EncodingName, Field(description="how the draft layers' history is stored")]
    scales: Annotated[Scales, Field(description="default: the cache's, where they are unit")] | None = None
    layer: Annotated[OneLayer, Field(description="a draft layer; default: the last attention layer of the model")] | (
        None
    ) = None
    pool: Annotated[
        Literal["auto", "target", "own"],
        Field(description="auto: shares slots with the target where slots are equal; target: must; own: never"),
    ] = "auto"
    tokens_per_page: Annotated[int, Field(description="default: the cache's")] | None = None
    tree: Annotated[
        Literal["none", "static", "dynamic"],
        Field(description="none: drafted tokens are a chain; trees are refused, with the reason"),
    ] = "none"


class Memory(Model):
    """Device memory: the cache may take ``(device - reserve) * free_fraction`` bytes."""

    device: Annotated[Bytes, Field(description="139GiB, 16GB or bytes (GB = 10**9, GiB = 2**30)")]
    free_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    reserve: Annotated[Bytes, Field(description="bytes kept for weights and activations")] = 0
    pool_ratio: (
        Annotated[
            list[Positive],
            Field(min_length=1, description="how the cache is divided: one weight a lifecycle; default: by the mix"),
        ]
        | None
    ) = None


class Parallel(Model):
    """How the model is divided over devices."""

    tensor: Annotated[int, Field(ge=1, le=65_536, description="ranks that divide the heads of every layer")] = 1


class Target(Model):
    """What the compiled program must serve."""

    device: Literal["cpu", "cuda"]
    arch: Annotated[str, choice(*ARCHS)] | None = None
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
        list[Annotated[str, choice(*PASSES)]],
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
    parallel: Parallel = Parallel()
    target: Target
    compile: Compile = Compile()
