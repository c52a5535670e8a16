"""Definition, checks and fake kernel of kvc::project_heads."""

from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, Operand, bind, same_dtype

DEFINITION = "project_heads(Tensor x, Tensor w) -> Tensor"
OPERANDS = (Operand("x", "T H I", ACTIVATIONS), Operand("w", "H I J", ACTIVATIONS))


def check(x: torch.Tensor, w: torch.Tensor) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    sizes = bind("project_heads", OPERANDS, (x, w))
    same_dtype("project_heads", {"x": x, "w": w})
    return sizes


def fake(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """An empty result."""
    return x.new_empty((*x.shape[:2], w.shape[2]))
