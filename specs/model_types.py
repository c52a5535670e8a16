"""What the parts of the schema share: the base model, union tags and annotated values."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from kvc.encodings import ENCODINGS, MIXED
from kvc.specs.sizes import BadValue, parse_layers, parse_size


class Model(BaseModel):
    """What all parts of a spec share: immutable, no unknown fields, no conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def tag(field: str, value: Any) -> str | None:
    """The union tag of ``value``: `kind=gqa`. Never a key of a document, so positions cannot be confused by it."""
    chosen = value.get(field) if isinstance(value, dict) else getattr(value, field, None)
    return f"{field}={chosen}" if isinstance(chosen, str) else None


def kind_tag(value: Any) -> str | None:
    """The tag of a union told apart by `kind`."""
    return tag("kind", value)


def _size(value: Any) -> Any:
    return parse_size(value) if isinstance(value, str) else value


def _layers(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        parse_layers(text)
    return text


def _tensor_name(value: Any) -> Any:
    """A name with the place of the layer's number in it, and nothing else in braces."""
    if isinstance(value, str):
        rest = value.replace("{layer}", "")
        if rest == value or set(rest) & set("{}") or not value.isprintable():
            help = "as in `model.layers.{layer}.self_attn.k_scale`"
            raise BadValue("a tensor's name needs `{layer}`, the layer's number, and has no other braces", help)
    return value


def choice(*names: str) -> Any:
    """Text whose choices editors should offer; a wrong one is judged by the checks."""
    return Field(json_schema_extra={"enum": list(names)})


_SIZE_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9.]+ ?[kKMGT]?i?B?$"}]}
_LAYERS_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9, -]+$"}]}

Dimension = Annotated[int, Field(ge=1, le=65_536)]
Positions = Annotated[int, Field(ge=1, le=2**30)]
Positive = Annotated[float, Field(gt=0, le=1e30)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0, le=2**60), WithJsonSchema(_SIZE_SCHEMA)]
LayerRanges = Annotated[str, BeforeValidator(_layers), WithJsonSchema(_LAYERS_SCHEMA)]
TensorName = Annotated[str, BeforeValidator(_tensor_name), Field(description="with `{layer}` in it")]
EncodingName = Annotated[str, choice(*ENCODINGS, *MIXED)]
# A scale and its reciprocal must both be normal fp32 numbers, and its product with 448, the largest code, finite.
Scale = Annotated[float, Field(ge=2.0**-126, le=2.0**119)]
