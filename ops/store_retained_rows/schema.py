"""Definition, checks and fake kernel of kvc::store_retained_rows."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, wrong
from kvc.ops.codecs.rows import check_scales
from kvc.ops.paging import check_encoded_pool
from kvc.ops.rope.schema import check_rotation
from kvc.ops.values import check_range, check_write_rows

NAME = "store_retained_rows"
DEFINITION = (
    f"{NAME}(Tensor(a!) twin, Tensor[] values, Tensor rows, Tensor? table, Tensor? positions, Tensor?[] scales, *, "
    "str encoding, str[] fields, int tokens_per_page, str? rotated=None, str? layout=None) -> ()"
)
OPERANDS = (
    Operand("twin", "P page_bytes", BYTES),
    Operand("rows", "T", INT32),
    Operand("table", "M R", FLOAT32, optional=True),
    Operand("positions", "T", INT32, optional=True),
)


def check(
    twin: torch.Tensor,
    values: Sequence[torch.Tensor],
    rows: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor | None,
    scales: Sequence[torch.Tensor | None],
    *,
    encoding: str,
    fields: Sequence[str],
    tokens_per_page: int,
    rotated: str | None = None,
    layout: str | None = None,
) -> dict[str, Any]:
    """Check shapes, dtypes, scales and rotation; return the sizes."""
    if not len(values) == len(fields) == len(scales):
        raise wrong(NAME, "fields", f"names {len(fields)} fields, values {len(values)}, scales {len(scales)}")
    operands = [Operand(f"values[{i}]", f"T heads{i} dim{i}", ACTIVATIONS) for i in range(len(values))]
    operands += [Operand(f"scales[{i}]", "2", FLOAT32, optional=True) for i in range(len(values))]
    sizes = bind(NAME, (*OPERANDS, *operands), (twin, rows, table, positions, *values, *scales))
    _check_rotated(sizes, fields, {"table": table, "positions": positions, "layout": layout}, rotated, layout)
    places = (f"scales[{i}]" for i in range(len(scales)))
    check_scales(NAME, encoding, list(zip(fields, places, scales, strict=True)))
    heads, dims = ([sizes[f"{name}{i}"] for i in range(len(values))] for name in ("heads", "dim"))
    check_encoded_pool(NAME, twin, encoding, fields, heads, dims, tokens_per_page, argument="twin")
    return sizes


def _check_rotated(
    sizes: dict[str, Any], fields: Sequence[str], given: dict[str, Any], rotated: str | None, layout: str | None
) -> None:
    """What is rotated here needs a table, positions and a layout; without that none of them means anything."""
    for name, value in given.items():
        if (value is None) != (rotated is None):
            problem = f"is missing: {rotated} is to be rotated" if rotated else "is given and nothing is rotated"
            raise wrong(NAME, name, problem)
    if rotated is None or layout is None:
        return
    if rotated not in fields:
        raise wrong(NAME, "rotated", f"is {rotated}, expected one of {', '.join(fields)}")
    check_rotation(NAME, sizes["R"], sizes[f"dim{list(fields).index(rotated)}"], layout)


def check_values(
    twin: torch.Tensor,
    values: Sequence[torch.Tensor],
    rows: torch.Tensor,
    table: torch.Tensor | None,
    positions: torch.Tensor | None,
    *rest: Any,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Positions are rows of the table; write rows lie in the twin and differ."""
    if table is not None and positions is not None:
        check_range(NAME, "positions", positions, 0, table.shape[0])
    check_write_rows(NAME, rows, twin.shape[0] * tokens_per_page)


def fake(*tensors: Any, **_: Any) -> None:
    """Nothing is returned."""
