"""What the planes given to a store are: the calls that encode them, by which codec, and in which encoding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx

from kvc.compiler_passes.effects import argument, is_call, operands, producer
from kvc.encodings import ENCODINGS, Encoding
from kvc.graphs.graph import is_op, op_name, result, result_values
from kvc.ops.codecs import INDEX, KV, MLA

Node = torch.fx.Node
QUANTIZE = "kvc.quantize_"
_JOIN = "aten.cat"  # of the parts of whole rows


@dataclass(frozen=True)
class EncodedField:
    """One stored field: the call that encodes it, the index of its first plane, and the codec."""

    call: Node
    first_plane: int
    codec: str

    @property
    def planes(self) -> list[Node | None]:
        """The planes in the order of the codec's parts, None where nothing takes one."""
        if len(result_values(self.call)) == 1:
            return [self.call]
        return [result(self.call, index) for index in range(self.first_plane, len(result_values(self.call)))]


def codec_of(quantize: Node) -> str:
    """The codec of a `kvc.quantize_*` call."""
    return op_name(quantize.target).removeprefix(QUANTIZE)


def encoded_field(call: Node) -> EncodedField | None:
    """What ``call`` encodes, None for a call that does not encode."""
    if is_op(call, "kvc.rope_quantize"):
        return EncodedField(call, 1, str(call.kwargs["encoding"]))
    if is_call(call) and op_name(call.target).startswith(QUANTIZE):
        return EncodedField(call, 0, codec_of(call))
    return None


def parts_of_planes(planes: Sequence[Node]) -> list[list[Node]]:
    """The values that each plane consists of: itself, or those that are joined to it."""
    return [
        list(operands(argument(plane, "tensors"))) if is_op(plane, _JOIN) else [plane] for plane in operands(planes)
    ]


def is_joined(planes: Any) -> bool:
    """Whether parts are joined to whole rows before they are stored."""
    return any(is_op(plane, _JOIN) for plane in planes)


def plane_makers(planes: Any) -> list[Node]:
    """The calls that make planes or the parts of them, in order, each once."""
    return list(dict.fromkeys(producer(part)[0] for parts in parts_of_planes(planes) for part in parts))


def codec_made_by(call: Node) -> str | None:
    """The codec that a call encodes by; None for a call that does not encode."""
    field = encoded_field(call)
    return field.codec if field else None


def stored_as(codecs: tuple[str | None, ...], joined: bool) -> frozenset[str]:
    """The encodings of rows whose fields are encoded by these codecs."""
    return frozenset(
        name
        for name, encoding in ENCODINGS.items()
        if bool(encoding.rows) == joined and any(codecs == _codecs(encoding, fields) for fields in (KV, MLA, INDEX))
    )


def _codecs(encoding: Encoding, fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(encoding.codec_of(field) for field in fields if encoding.parts_of(field))
