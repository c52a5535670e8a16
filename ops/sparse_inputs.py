"""Example inputs of sparse latent attention, beside those of `mla_inputs`: what the tokens of a step select."""

import torch

from kvc.ops.example_inputs import Shape, positions, sequence_ids

TOP_K = 6


def selected(shape: Shape, top_k: int = TOP_K) -> torch.Tensor:
    """Positions int32 ``[T, K]`` up to each token's own, every one once, in any order; -1 behind and for padding."""
    chosen = torch.full((shape.tokens, top_k), -1, dtype=torch.int32)
    order = torch.Generator().manual_seed(shape.tokens)
    for row, sequence, position in zip(chosen, sequence_ids(shape), positions(shape), strict=True):
        some = torch.randperm(int(position) + 1, generator=order)[: top_k if sequence >= 0 else 0]
        row[: len(some)] = some
    return chosen
