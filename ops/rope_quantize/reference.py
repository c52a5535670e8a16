"""Reference of kvc::rope_quantize."""

import torch

from kvc.ops.codecs import codec_named
from kvc.ops.rope.reference import rope


def rope_quantize(
    x: torch.Tensor,
    table: torch.Tensor,
    positions: torch.Tensor,
    scale: torch.Tensor | None,
    *,
    encoding: str,
    layout: str,
) -> list[torch.Tensor]:
    """Rotate, round to x's dtype, then encode: kvc::rope followed by kvc::quantize_<codec>, bit for bit.

    x, table, positions and layout as in kvc::rope; ``encoding`` names a codec: fields of one encoding may have several.
    scale f32 [2] = [scale, factor] where the codec takes one, else None. Returns [rotated [T, H, D] in x's dtype, then
    the planes uint8 [T, H, row bytes] of the codec].
    Errors as in kvc::rope, and KVC551 for the scale, KVC554 for the codec. Source: docs/semantics.md.
    """
    rotated = rope(x, table, positions, layout=layout)
    return [rotated, *codec_named("rope_quantize", encoding).encode(rotated, scale)]
