"""The rows that layers of a step chose, kept for the layers that read the same ones."""

import torch
from torch import Tensor

from kvc.diagnostics import fail
from kvc.graphs.program import Binding, Phase
from kvc.runtime.batch import Step


class Selections:
    """The last choice of each phase: layers take that of the nearest earlier layer that made one."""

    def __init__(self) -> None:
        self._last: dict[Phase, tuple[int, Tensor]] = {}

    def taken(self, binding: Binding, phase: Phase) -> dict[str, Tensor]:
        """What a layer's graph takes of another layer's choice, by placeholder; raises as `of`."""
        source = binding.selected_from
        return {} if source is None else {"selected.rows": self.of(source, phase)}

    def keep(self, layer: int, phase: Phase, outputs: dict[str, Tensor]) -> None:
        """Keep what ``layer`` chose, int32 ``[T, K]``, if it did."""
        if "selected" in outputs:
            self._last[phase] = layer, outputs["selected"]

    def of(self, layer: int, phase: Phase) -> Tensor:
        """What ``layer`` chose. KVC505 where it has not run in this step, or another has chosen since."""
        last, rows = self._last.get(phase, (None, None))
        if rows is None or last != layer:
            help = f"call layer {layer}, and then the layers that share its choice before another layer chooses"
            raise fail("KVC505", f"the rows that layer {layer} chooses are not at hand in this step", help=help)
        return rows

    def of_step(self, binding: Binding, step: Step) -> Tensor:
        """The rows that a layer reads, of all parts of a step, padding left out; raises as `of`."""
        layer = binding.layer if binding.selected_from is None else binding.selected_from
        parts = [self.of(layer, part.phase)[: part.tokens] for part in step.parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)
