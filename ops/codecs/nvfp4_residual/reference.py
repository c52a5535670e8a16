"""nvfp4_residual as in docs/semantics.md."""

from collections.abc import Sequence

import torch

from kvc.ops.codecs.nvfp4 import reference as nvfp4

_HALF = nvfp4.GROUP // 2  # bytes of a group's codes


def encode(x: torch.Tensor, scale: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Per 16 values 8 bytes of the main codes, 8 of the residual's, and their two scales side by side.

    main = nvfp4(x); residual = nvfp4(x - value(main)) with scales of its own under the same global scale.
    """
    main = nvfp4.encode(x, scale)
    residual = nvfp4.encode(x.float() - nvfp4.decode(main, scale), scale)
    return tuple(
        torch.stack([plane.unflatten(-1, (-1, size)) for plane in pair], -2).flatten(-3)
        for size, pair in zip((_HALF, 1), zip(main, residual, strict=True), strict=True)
    )


def decode(planes: Sequence[torch.Tensor], scale: torch.Tensor | None) -> torch.Tensor:
    """The sum of both values in fp32."""
    apart = [plane.unflatten(-1, (-1, 2, size)) for size, plane in zip((_HALF, 1), planes, strict=True)]
    main, residual = ([plane[..., half, :].flatten(-2) for plane in apart] for half in (0, 1))
    return nvfp4.decode(main, scale) + nvfp4.decode(residual, scale)
