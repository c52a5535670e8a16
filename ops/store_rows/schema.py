"""Definition, checks and fake kernel of kvc::store_rows."""

from collections.abc import Sequence

import torch

from kvc.ops.axes import BYTES, INT32, Operand, bind, known, wrong
from kvc.ops.paging import check_pool, raw_layout
from kvc.ops.values import check_write_rows

DEFINITION = "store_rows(Tensor(a!) pool, Tensor[] planes, Tensor rows, *, int tokens_per_page) -> ()"
POOL = Operand("pool", "P page_bytes", BYTES)
ROWS = Operand("rows", "T", INT32)


def check(pool: torch.Tensor, planes: Sequence[torch.Tensor], rows: torch.Tensor, *, tokens_per_page: int) -> None:
    """Check shapes and dtypes, and that the planes make up the pool's pages."""
    names = [f"planes[{i}]" for i in range(len(planes))]
    operands = [Operand(name, f"T heads{i} row_bytes{i}", BYTES) for i, name in enumerate(names)]
    bind("store_rows", (POOL, *operands, ROWS), (pool, *planes, rows))
    if not planes:
        raise wrong("store_rows", "planes", "is empty")
    if tokens_per_page < 1:
        raise wrong("store_rows", "tokens_per_page", f"is {tokens_per_page}, expected 1 or more")
    shapes = tuple((plane.shape[1], plane.shape[2]) for plane in planes)
    if known(*(size for shape in shapes for size in shape)):
        check_pool("store_rows", pool, raw_layout(shapes, tokens_per_page))


def check_values(
    pool: torch.Tensor, planes: Sequence[torch.Tensor], rows: torch.Tensor, *, tokens_per_page: int
) -> None:
    """Write rows lie in the pool and differ."""
    check_write_rows("store_rows", rows, pool.shape[0] * tokens_per_page)


def fake(pool: torch.Tensor, planes: Sequence[torch.Tensor], rows: torch.Tensor, *, tokens_per_page: int) -> None:
    """Nothing is returned."""
