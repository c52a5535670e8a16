"""Reference of kvc::project_heads."""

import torch


def project_heads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The rows of every head times the head's own matrix: absorbs W_UK into queries and expands outputs by W_UV.

    x [T, H, I] and w [H, I, J] of one activation dtype, any strides. Returns [T, H, J] in that dtype: sums in fp32,
    rounded once.
    Errors: KVC551 shapes and dtypes. Source: docs/semantics.md.
    """
    out = x.new_empty((x.shape[0], x.shape[1], w.shape[2]))
    return out.copy_((x.float().transpose(0, 1) @ w.float()).transpose(0, 1))
