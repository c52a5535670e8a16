"""Definition, checks and fake kernel of kvc::rope_quantize."""

from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, FLOAT32, INT32, Operand, bind
from kvc.ops.codecs import codec_named
from kvc.ops.codecs.operators import row_bytes
from kvc.ops.rope.schema import check_rotation
from kvc.ops.values import check_range

DEFINITION = (
    "rope_quantize(Tensor x, Tensor table, Tensor positions, Tensor? scale, *, str encoding, str layout) -> Tensor[]"
)
OPERANDS = (
    Operand("x", "T H D", ACTIVATIONS),
    Operand("table", "M R", FLOAT32),
    Operand("positions", "T", INT32),
    Operand("scale", "2", FLOAT32, optional=True),
)


def check(
    x: torch.Tensor,
    table: torch.Tensor,
    positions: torch.Tensor,
    scale: torch.Tensor | None,
    *,
    encoding: str,
    layout: str,
) -> list[Any]:
    """Check shapes, dtypes, encoding and layout; return the row bytes of every plane."""
    sizes = bind("rope_quantize", OPERANDS, (x, table, positions, scale))
    check_rotation("rope_quantize", sizes["R"], sizes["D"], layout)
    codec = codec_named("rope_quantize", encoding)
    codec.check_scale("rope_quantize", "scale", scale)
    return row_bytes("rope_quantize", codec, sizes["D"])


def check_values(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, *rest: Any, **attributes: Any) -> None:
    """Positions are rows of the table."""
    check_range("rope_quantize", "positions", positions, 0, table.shape[0])


def fake(x: torch.Tensor, *rest: Any, **attributes: Any) -> list[torch.Tensor]:
    """Empty results."""
    sizes = check(x, *rest, **attributes)
    return [x.new_empty(x.shape), *(x.new_empty((*x.shape[:-1], size), dtype=torch.uint8) for size in sizes)]
