"""A twin beside the history, for the ops that read or write both: its operands, attributes and checks.

They come last and may be left out: a plain cache has no twin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kvc.ops.axes import BYTES, FLOAT32, INT32, Operand, wrong
from kvc.ops.codecs.rows import check_scales
from kvc.ops.paging import check_encoded_pool
from kvc.ops.retained import check_retained
from kvc.ops.values import check_range, check_write_rows

TWIN = Operand("twin", "Q twin_bytes", BYTES, optional=True)
TWIN_TABLE = Operand("twin_table", "B W", INT32, optional=True)
TWIN_ROWS = Operand("twin_rows", "T", INT32, optional=True)
COMMITTED = Operand("committed", "B", INT32, optional=True)
READS = 'str? twin_encoding=None, int first=0, int last=0, str unit="token"'  # attributes of an op that reads a twin


def twin_scales(fields: Sequence[str]) -> tuple[Operand, ...]:
    """A scale operand for each field of the twin."""
    return tuple(Operand(f"{field}_twin_scale", "2", FLOAT32, optional=True) for field in fields)


def declared(operands: Sequence[Operand]) -> str:
    """Optional operands as the schema of an op that reads has them, each after a comma."""
    return "".join(f", Tensor? {operand.name}=None" for operand in operands)


def named(operands: Sequence[Operand], tensors: Sequence[Any]) -> dict[str, Any]:
    """Operands by name; those behind the last one given are None: the dispatcher leaves trailing defaults out."""
    given = (*tensors, *(None,) * (len(operands) - len(tensors)))
    return dict(zip((operand.name for operand in operands), given, strict=True))


@dataclass(frozen=True)
class RowSizes:
    """Fields of a row: names, heads and dims."""

    fields: Sequence[str]
    heads: Sequence[Any]
    dims: Sequence[Any]


def check_twin(
    op: str,
    row: RowSizes,
    given: Mapping[str, torch.Tensor | None],
    encoding: str | None,
    tokens_per_page: int,
    retained: tuple[int, int, str] | None = None,
    scales: Mapping[str, str] | None = None,
) -> None:
    """Check what an op is given of a twin: everything or nothing.

    ``given``: its operands by name; ``retained``: first, last and unit of an op that reads; ``scales``: operand ->
    field, `<field>_twin_scale` where not given. Raises KVC551 for an operand too few or too many, for wrong pages and
    scales; KVC554 for the encoding.
    """
    scales = scales or {f"{field}_twin_scale": field for field in row.fields}
    needed = {name: value for name, value in given.items() if name not in scales} | {"twin_encoding": encoding}
    twin = given["twin"]
    if twin is None or encoding is None:
        _check_nothing(op, given, encoding)
        return
    for name, value in needed.items():
        if value is None:
            raise wrong(op, name, "is missing: it goes with twin")
    if retained is not None:
        check_retained(op, *retained)
    check_scales(op, encoding, [(field, name, given[name]) for name, field in scales.items()])
    check_encoded_pool(op, twin, encoding, row.fields, row.heads, row.dims, tokens_per_page, argument="twin")


def check_pools(
    op: str,
    row: RowSizes,
    named: Mapping[str, Any],
    twin: Sequence[Operand],
    encodings: tuple[str, str | None],
    tokens_per_page: int,
    retained: tuple[int, int, str] | None = None,
) -> None:
    """Check that a row makes up the pages of `pool`, and of the twin, whose operands are ``twin``, if there is one.

    ``encodings``: the history's and the twin's. Raises as `check_encoded_pool` and `check_twin`.
    """
    check_encoded_pool(op, named["pool"], encodings[0], row.fields, row.heads, row.dims, tokens_per_page)
    given = {operand.name: named[operand.name] for operand in twin}
    check_twin(op, row, given, encodings[1], tokens_per_page, retained)


def _check_nothing(op: str, given: Mapping[str, torch.Tensor | None], encoding: str | None) -> None:
    for name, value in (*given.items(), ("twin_encoding", encoding)):
        if value is not None:
            missing = "twin" if given["twin"] is None else "twin_encoding"
            raise wrong(op, missing, f"is missing: it goes with {name}")


def check_twin_values(op: str, named: Mapping[str, Any], tokens_per_page: int) -> None:
    """Pages lie in the twin, committed lengths in its table."""
    table = named["twin_table"]
    if table is not None:
        check_range(op, "twin_table", table, -1, named["twin"].shape[0])
        check_range(op, "committed", named["committed"], 0, table.shape[1] * tokens_per_page + 1)


def check_twin_rows(op: str, named: Mapping[str, Any], tokens_per_page: int) -> None:
    """Write rows lie in the twin and differ."""
    if named["twin_rows"] is not None:
        check_write_rows(op, named["twin_rows"], named["twin"].shape[0] * tokens_per_page, "twin_rows")


def check_no_codes(op: str, values: Mapping[str, torch.Tensor], twin: torch.Tensor | None) -> None:
    """Raise KVC551 where a value comes as codes of the history: the twin encodes the value itself."""
    for name, value in values.items():
        if twin is not None and value.dtype == torch.uint8:
            raise wrong(op, name, "holds codes of the history, and the twin needs the values")
