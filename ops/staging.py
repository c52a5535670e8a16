"""Staging: dense rows of every sequence that an engine's own attention kernel reads, one tensor a field.

``[sequences, L, heads, dim]`` in an activation dtype, on any strides. There may be fewer sequences than the step has,
padding left out, or more: an engine keeps one staging for all of its layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from kvc.ops.axes import ACTIVATIONS, FLOAT32, Operand, known, same_dtype, wrong
from kvc.ops.codecs.rows import check_scales
from kvc.ops.mixed import RowSizes, check_twin
from kvc.ops.paging import check_encoded_pool
from kvc.ops.values import check_range

AXES = "staged L"


@dataclass(frozen=True)
class Fields:
    """What an op of staging is given for each field of a row: its name, its staging and its two scales."""

    names: Sequence[str]
    staging: Sequence[torch.Tensor]
    scales: Sequence[torch.Tensor | None]
    twin_scales: Sequence[torch.Tensor | None]

    @property
    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        """The tensors, as `operands` has them."""
        return (*self.staging, *self.scales, *self.twin_scales)

    def operands(self, op: str) -> tuple[Operand, ...]:
        """An operand for each tensor; raises KVC551 where their numbers differ or there are none."""
        numbers = [len(x) for x in (self.names, self.staging, self.scales, self.twin_scales)]
        if not numbers[0] or len(set(numbers)) > 1:
            counted = dict(zip(("fields", "staging", "scales", "twin_scales"), numbers, strict=True))
            raise wrong(op, "fields", "differ in number: " + ", ".join(f"{name} {n}" for name, n in counted.items()))
        staged = [Operand(f"staging[{i}]", f"{AXES} heads{i} dim{i}", ACTIVATIONS) for i in range(numbers[0])]
        scales = [
            Operand(f"{name}[{i}]", "2", FLOAT32, optional=True)
            for name in ("scales", "twin_scales")
            for i in range(numbers[0])
        ]
        return (*staged, *scales)

    def check(
        self,
        op: str,
        pool: torch.Tensor,
        twin: Mapping[str, torch.Tensor | None],
        encodings: tuple[str, str | None],
        tokens_per_page: int,
        retained: tuple[int, int, str] | None = None,
    ) -> None:
        """Check that the fields share a dtype and make up the pages of both pools, and the scales they have there.

        ``twin``: its operands by name; ``encodings``: the history's and the twin's. Raises KVC551 and KVC554.
        """
        staged = {f"staging[{i}]": x for i, x in enumerate(self.staging)}
        same_dtype(op, staged)
        places = (f"scales[{i}]" for i in range(len(self.scales)))
        check_scales(op, encodings[0], list(zip(self.names, places, self.scales, strict=True)))
        heads, dims = ([x.shape[axis] for x in self.staging] for axis in (2, 3))
        check_encoded_pool(op, pool, encodings[0], self.names, heads, dims, tokens_per_page)
        scales = {f"twin_scales[{i}]": name for i, name in enumerate(self.names)}
        given = {**twin, **dict(zip(scales, self.twin_scales, strict=True))}
        row = RowSizes(self.names, heads, dims)
        check_twin(op, row, given, encodings[1], tokens_per_page, retained, scales)


def check_writable(op: str, staging: Sequence[torch.Tensor]) -> None:
    """Raise KVC551 for staging whose rows share memory: a write to one would change another."""
    for i, x in enumerate(staging):
        for size, stride in zip(x.shape, x.stride(), strict=True):
            if known(size, stride) and size > 1 and stride == 0:
                raise wrong(op, f"staging[{i}]", "is expanded: rows that share memory cannot be written")


def check_room(op: str, staging: Sequence[torch.Tensor], argument: str, lengths: torch.Tensor) -> None:
    """Raise KVC552 for a length beyond the staging, KVC551 where a sequence that is not empty has none."""
    sequences, rows = staging[0].shape[:2]
    check_range(op, argument, lengths[:sequences], 0, rows + 1)
    left = lengths[sequences:].nonzero()
    if left.numel():
        sequence = sequences + int(left[0])
        problem = f"holds {sequences} sequences: sequence {sequence} has {int(lengths[sequence])} rows"
        raise wrong(op, "staging[0]", problem)


def check_places(
    op: str,
    staging: Sequence[torch.Tensor],
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    written: torch.Tensor,
) -> None:
    """Raise KVC552 unless every token that is written has a place in staging; the others need none."""
    if not written.any():
        return
    for i, (name, values) in enumerate((("sequence_ids", sequence_ids), ("positions", positions))):
        check_range(op, name, values.where(written, 0), 0, staging[0].shape[i])
