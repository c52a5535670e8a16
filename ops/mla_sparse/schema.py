"""Definition, checks and fake kernel of kvc::mla_sparse."""

from typing import Any

import torch

from kvc.diagnostics import fail
from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, same_dtype, wrong
from kvc.ops.values import check_range, check_tokens

NAME = "mla_sparse"
DEFINITION = (
    f"{NAME}(Tensor q_latent, Tensor q_rope, Tensor latent, Tensor rope, Tensor selected, Tensor positions, "
    "Tensor sequence_ids, Tensor page_table, Tensor? row_scale, *, str rows_of, int tokens_per_page, "
    "float softmax_scale) -> (Tensor, Tensor)"
)
ROWS_OF = {"selection": "T K", "sequence": "B L"}


def _operands(rows: str) -> tuple[Operand, ...]:
    return (
        Operand("q_latent", "T H C", ACTIVATIONS),
        Operand("q_rope", "T H R", ACTIVATIONS),
        Operand("latent", f"{rows} 1 C", ACTIVATIONS | BYTES),
        Operand("rope", f"{rows} 1 R", ACTIVATIONS | BYTES),
        Operand("selected", "T K", INT32),
        Operand("positions", "T", INT32),
        Operand("sequence_ids", "T", INT32),
        Operand("page_table", "B W", INT32),
        Operand("row_scale", "2", FLOAT32, optional=True),
    )


OPERANDS = {rows_of: _operands(axes) for rows_of, axes in ROWS_OF.items()}


def check(*tensors: Any, rows_of: str, tokens_per_page: int, softmax_scale: float) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    if rows_of not in ROWS_OF:
        raise fail("KVC554", f"kvc::{NAME}: rows_of {rows_of!r} is not known", help=f"one of {', '.join(ROWS_OF)}")
    if tokens_per_page < 1:
        raise wrong(NAME, "tokens_per_page", f"is {tokens_per_page}, expected 1 or more")
    sizes = bind(NAME, OPERANDS[rows_of], tensors)
    named = dict(zip((operand.name for operand in OPERANDS[rows_of]), tensors, strict=True))
    same_dtype(NAME, {name: named[name] for name in ("q_latent", "q_rope")})
    same_dtype(NAME, {name: named[name] for name in ("latent", "rope")})
    _check_codes(named["q_latent"], named["latent"], named["row_scale"])
    return sizes


def _check_codes(q_latent: torch.Tensor, latent: torch.Tensor, row_scale: torch.Tensor | None) -> None:
    """Codes come with the scale that they were made under, values in the queries' dtype and without one."""
    if (latent.dtype == torch.uint8) != (row_scale is not None):
        problem = "is missing: latent holds codes" if row_scale is None else "is given: latent holds no codes"
        raise wrong(NAME, "row_scale", problem)
    if row_scale is None:
        same_dtype(NAME, {"q_latent": q_latent, "latent": latent})


def check_values(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    rope: torch.Tensor,
    selected: torch.Tensor,
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    page_table: torch.Tensor,
    row_scale: torch.Tensor | None,
    *,
    rows_of: str,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Tokens lie in the table and in the rows; what they select may have any value."""
    sequences, width = page_table.shape
    longest = width * tokens_per_page
    longest = longest if rows_of == "selection" else min(longest, latent.shape[1])
    check_range(NAME, "page_table", page_table, -1, 2**31)
    check_tokens(NAME, positions, sequence_ids, sequences, longest)


def fake(q_latent: torch.Tensor, *rest: Any, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty results."""
    return q_latent.new_empty(q_latent.shape), q_latent.new_empty(q_latent.shape[:2], dtype=torch.float32)
