"""From a transformers batch ``[B, T]`` with padding to the packed tokens of a kvc step, and back."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Which tokens of a batch ``[batch, length]`` are real.

    ``rows`` int64 ``[n]`` are their indices in the flattened batch, in the order kvc takes them; None: all, in order.
    """

    batch: int
    length: int
    rows: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Number of real tokens."""
        return self.batch * self.length if self.rows is None else self.rows.numel()

    def take(self, batched: Tensor) -> Tensor:
        """Real rows of ``[B, T, H, D]`` as ``[n, H, D]``."""
        flat = batched.reshape(self.batch * self.length, *batched.shape[2:])
        return flat if self.rows is None else flat.index_select(0, self.rows)

    def put(self, packed: Tensor) -> Tensor:
        """Packed rows ``[n, H, V]`` at their place in ``[B, T, H, V]``; padding is 0."""
        shape = (self.batch, self.length, *packed.shape[1:])
        if self.rows is None:
            return packed.reshape(shape)
        out = packed.new_zeros((self.batch * self.length, *packed.shape[1:]))
        return out.index_copy_(0, self.rows, packed).view(shape)


def pack(real: Tensor) -> Packing:
    """Packing of a batch from its mask, bool ``[B, T]``: true where a token is real."""
    batch, length = real.shape
    if bool(real.all()):
        return Packing(batch, length)
    return Packing(batch, length, torch.nonzero(real.reshape(-1)).reshape(-1))
