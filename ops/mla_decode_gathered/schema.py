"""Definition, checks and fake kernel of kvc::mla_decode_gathered."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, INT32, Operand, bind, same_dtype
from kvc.ops.gathered_rows import check_lengths, check_rows, row_operands
from kvc.ops.values import check_queries

NAME = "mla_decode_gathered"
DEFINITION = (
    f"{NAME}(Tensor q_latent, Tensor q_rope, Tensor[] rows, Tensor page_table, Tensor lengths, *, int tokens_per_page, "
    "float softmax_scale) -> (Tensor, Tensor)"
)
OPERANDS = (
    Operand("q_latent", "T H C", ACTIVATIONS),
    Operand("q_rope", "T H R", ACTIVATIONS),
    Operand("page_table", "B W", INT32),
    Operand("lengths", "B", INT32),
)


def check(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    tokens_per_page: int,
    softmax_scale: float,
) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    fields = row_operands(NAME, rows, ("1 C", "1 R"))
    sizes = bind(NAME, (*OPERANDS, *fields), (q_latent, q_rope, page_table, lengths, *rows))
    same_dtype(NAME, {"q_latent": q_latent, "q_rope": q_rope})
    check_rows(NAME, rows, sizes, tokens_per_page)
    return sizes


def check_values(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    rows: Sequence[torch.Tensor],
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    **_: Any,
) -> None:
    """Every sequence has as many query tokens, lengths lie in the rows."""
    check_queries(NAME, "q_latent", q_latent, lengths)
    check_lengths(NAME, "lengths", lengths, rows)


def fake(q_latent: torch.Tensor, *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    return q_latent.new_empty(q_latent.shape), q_latent.new_empty(q_latent.shape[:2], dtype=torch.float32)
