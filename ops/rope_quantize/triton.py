"""kvc::rope_quantize in Triton, one launch."""

# mypy: ignore-errors
import torch

from kvc.ops.codecs import codec_named
from kvc.ops.device.encode import encode


def rope_quantize(
    x: torch.Tensor,
    table: torch.Tensor,
    positions: torch.Tensor,
    scale: torch.Tensor | None,
    *,
    encoding: str,
    layout: str,
) -> list[torch.Tensor]:
    """As the reference."""
    turned, planes = encode(x, codec_named("rope_quantize", encoding), scale, table, positions, layout)
    return [turned, *planes]
