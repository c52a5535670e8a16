"""Pools of latent rows whose other bytes are overwritten."""

import torch

from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import page_table
from kvc.ops.paging import plane_views


def _random(like):
    return torch.randint(0, 256, like.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(9))


def _byte(value):
    return lambda like: torch.full_like(like, value)


FILLS = {"0x00": _byte(0x00), "0x7F": _byte(0x7F), "0xAA": _byte(0xAA), "0xFF": _byte(0xFF), "random": _random}


def with_other_bytes(shape, pool, lengths, fill):
    """``fill`` everywhere but in the rows of every sequence below its length."""
    other, table, tokens = fill(pool), page_table(shape), shape.tokens_per_page
    layout = inputs.row(shape).layout(tokens)
    for view, kept in zip(plane_views(other, layout), plane_views(pool, layout), strict=True):
        for b, length in enumerate(lengths):
            for position in range(length):
                page = table[b, position // tokens]
                view[page, :, position % tokens] = kept[page, :, position % tokens]
    return other
