"""Definition, checks and fake kernel of kvc::copy_page_tables."""

from collections.abc import Sequence
from typing import Any

import torch

from kvc.ops.axes import INT32, Operand, bind, known, wrong
from kvc.ops.values import check_range

DEFINITION = "copy_page_tables(Tensor slot_tables, *, int[] lifecycles, int[] pages_per_slot, int[] offsets) -> Tensor"
OPERANDS = (Operand("slot_tables", "G B W", INT32),)
_INT32_END = 2**31


def check(
    slot_tables: torch.Tensor, *, lifecycles: Sequence[int], pages_per_slot: Sequence[int], offsets: Sequence[int]
) -> dict[str, Any]:
    """Check shapes and that the lists agree; return the sizes."""
    sizes = bind("copy_page_tables", OPERANDS, (slot_tables,))
    if not len(lifecycles) == len(pages_per_slot) == len(offsets):
        counts = f"{len(lifecycles)} entries, pages_per_slot {len(pages_per_slot)}, offsets {len(offsets)}"
        raise wrong("copy_page_tables", "lifecycles", f"has {counts}")
    if known(sizes["G"]) and not all(0 <= lifecycle < sizes["G"] for lifecycle in lifecycles):
        raise wrong("copy_page_tables", "lifecycles", f"is {list(lifecycles)}, axis G has {sizes['G']}")
    if not all(0 <= offset < pages for offset, pages in zip(offsets, pages_per_slot, strict=True)):
        raise wrong("copy_page_tables", "offsets", f"is {list(offsets)}, expected 0 <= offset < pages_per_slot")
    return sizes


def check_values(
    slot_tables: torch.Tensor, *, lifecycles: Sequence[int], pages_per_slot: Sequence[int], offsets: Sequence[int]
) -> None:
    """Entries are slots or -1, and page ids fit in int32."""
    check_range("copy_page_tables", "slot_tables", slot_tables, -1, _INT32_END // max((1, *pages_per_slot)))


def fake(slot_tables: torch.Tensor, *, lifecycles: Sequence[int], **_: Any) -> torch.Tensor:
    """An empty result."""
    return slot_tables.new_empty((len(lifecycles), *slot_tables.shape[1:]))
