"""V of context attention with its tokens innermost, ``[H, V, columns]``: what FP8 tensor cores read without turning it.

Every sequence starts at a column that is a multiple of 16, so that its rows can be loaded whole.
"""

from itertools import pairwise
from typing import Any

import torch

ALIGNMENT = 16


def columns(tokens: Any, sequences: Any) -> Any:
    """Columns for any division of ``tokens`` between ``sequences``: each is rounded up to the alignment."""
    return tokens + ALIGNMENT * sequences


def empty(like: torch.Tensor, heads: Any, width: Any, size: Any) -> torch.Tensor:
    """An empty ``[heads, width, size]`` in the dtype of ``like``, rows starting at multiples of the alignment."""
    stride = (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    return like.new_empty_strided((heads, width, size), (width * stride, stride, 1))


def starts(query_starts: list[int]) -> list[int]:
    """The first column of every sequence, and the end of the last."""
    found = [0]
    for start, end in pairwise(query_starts):
        found.append(found[-1] + -(-(end - start) // ALIGNMENT) * ALIGNMENT)
    return found
