"""Definition, checks and fake kernel of kvc::rope."""

from typing import Any

import torch

from kvc.diagnostics import fail
from kvc.ops.axes import ACTIVATIONS, FLOAT32, INT32, Operand, bind, known, wrong
from kvc.ops.values import check_range

DEFINITION = "rope(Tensor x, Tensor table, Tensor positions, *, str layout) -> Tensor"
LAYOUTS = ("half", "interleaved")
OPERANDS = (
    Operand("x", "T H D", ACTIVATIONS),
    Operand("table", "M R", FLOAT32),
    Operand("positions", "T", INT32),
)


def check(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, *, layout: str) -> dict[str, Any]:
    """Check shapes and dtypes; return the sizes."""
    sizes = bind("rope", OPERANDS, (x, table, positions))
    check_rotation("rope", sizes["R"], sizes["D"], layout)
    return sizes


def check_rotation(op: str, width: Any, dim: Any, layout: str) -> None:
    """Raise unless a table of ``width`` rotates heads of ``dim`` features in a known layout."""
    if layout not in LAYOUTS:
        raise fail("KVC554", f"kvc::{op}: layout {layout!r} is not known", help=f"one of {', '.join(LAYOUTS)}")
    if known(width, dim) and (width % 2 or width > dim):
        raise wrong(op, "table", f"axis R is {width}, expected an even number up to D = {dim}")


def check_optional_rotation(op: str, table: Any, positions: Any, layout: str | None) -> None:
    """Raise unless what an op rotates by is given as a whole, or not at all."""
    if (table is None) != (positions is None):
        raise wrong(op, "positions", "go with table: give both or neither")
    if (table is None) != (layout is None):
        raise wrong(op, "layout", "goes with table: give both or neither")


def check_values(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, *, layout: str) -> None:
    """Positions are rows of the table."""
    check_range("rope", "positions", positions, 0, table.shape[0])


def fake(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, *, layout: str) -> torch.Tensor:
    """An empty result."""
    return x.new_empty(x.shape)
