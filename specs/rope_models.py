"""Rotary embeddings in the schema."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from kvc.specs.model_types import Dimension, Model, Positions, Positive, kind_tag


def _rope_tag(value: Any) -> str | None:
    return f"kind={value}" if isinstance(value, str) else kind_tag(value)


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
    truncate: Annotated[bool, Field(description="the ramp between the betas starts and ends at whole pairs")] = True


Rope = Annotated[
    Annotated[Literal["none"], Tag("kind=none")]
    | Annotated[DefaultRope, Tag("kind=default")]
    | Annotated[LinearRope, Tag("kind=linear")]
    | Annotated[Llama3Rope, Tag("kind=llama3")]
    | Annotated[YarnRope, Tag("kind=yarn")],
    Discriminator(_rope_tag),
]
