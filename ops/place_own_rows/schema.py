"""Definition, checks and fake kernel of kvc::place_own_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, same_dtype, wrong
from kvc.ops.values import check_tokens, check_write_rows

NAME = "place_own_rows"
DEFINITION = (
    f"{NAME}(Tensor[] rows, Tensor[] own, Tensor positions, Tensor sequence_ids, Tensor? code_scale=None) -> Tensor[]"
)
OPERANDS = (
    Operand("positions", "T", INT32),
    Operand("sequence_ids", "T", INT32),
    Operand("code_scale", "2", FLOAT32, optional=True),
)


def check(
    rows: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor],
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    code_scale: torch.Tensor | None = None,
) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    if len(own) != len(rows) or not rows:
        raise wrong(NAME, "own", f"has {len(own)} fields, rows {len(rows)}, expected one or more of each")
    stored = ACTIVATIONS if code_scale is None else BYTES
    operands = [Operand(f"rows[{i}]", f"B L heads{i} dim{i}", stored) for i in range(len(rows))]
    operands += [Operand(f"own[{i}]", f"T heads{i} dim{i}", ACTIVATIONS) for i in range(len(own))]
    sizes = bind(NAME, (*OPERANDS, *operands), (positions, sequence_ids, code_scale, *rows, *own))
    computed = {f"own[{i}]": x for i, x in enumerate(own)}
    gathered = {f"rows[{i}]": x for i, x in enumerate(rows)}
    same_dtype(NAME, gathered if code_scale is not None else gathered | computed)
    same_dtype(NAME, computed)
    return sizes


def check_values(
    rows: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor],
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    code_scale: torch.Tensor | None = None,
) -> None:
    """Tokens lie in the rows, each at a place of its own."""
    sequences, length = rows[0].shape[:2]
    check_tokens(NAME, positions, sequence_ids, sequences, length)
    place = (sequence_ids.long() * length + positions).masked_fill(sequence_ids < 0, -1)
    check_write_rows(NAME, place, sequences * length, "positions")


def fake(rows: Sequence[torch.Tensor], *rest: Any, **_: Any) -> list[torch.Tensor]:
    """Empty results."""
    return [x.new_empty(x.shape) for x in rows]
