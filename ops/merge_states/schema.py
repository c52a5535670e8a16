"""Definition, checks and fake kernel of kvc::merge_states."""

from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, FLOAT32, Operand, bind

DEFINITION = "merge_states(Tensor out, Tensor lse) -> (Tensor, Tensor)"
OPERANDS = (Operand("out", "N T H V", ACTIVATIONS), Operand("lse", "N T H", FLOAT32))


def check(out: torch.Tensor, lse: torch.Tensor) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    return bind("merge_states", OPERANDS, (out, lse))


def fake(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    return out.new_empty(out.shape[1:]), lse.new_empty(lse.shape[1:])
