"""The rotary embedding of an attached model: none, because kvc rotates in its own program."""

import torch
from torch import Tensor


class IdentityRotary(torch.nn.Module):
    """Stands in for a model's rotary embedding and hands out cos = 1 and sin = 0.

    The model then computes ``x * 1 + rotate_half(x) * 0``, which is x exactly for every finite value (-0 becomes +0).
    """

    def forward(self, x: Tensor, position_ids: Tensor | None = None, **_: object) -> tuple[Tensor, Tensor]:
        """Cos and sin ``[1, 1, 1]`` in the dtype of ``x``; they broadcast over tokens and features."""
        return x.new_ones((1, 1, 1)), x.new_zeros((1, 1, 1))
