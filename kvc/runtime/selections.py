"""The rows that layers of a step chose, kept for the layers that read the same ones."""

from torch import Tensor

from kvc.diagnostics import fail
from kvc.graphs.program import Phase


class Selections:
    """The last choice of each phase: layers take that of the nearest earlier layer that made one."""

    def __init__(self) -> None:
        self._last: dict[Phase, tuple[int, Tensor]] = {}

    def keep(self, layer: int, phase: Phase, rows: Tensor) -> None:
        """``layer`` chose ``rows``, int32 ``[T, K]``."""
        self._last[phase] = layer, rows

    def of(self, layer: int, phase: Phase) -> Tensor:
        """What ``layer`` chose. KVC505 where it has not run in this step, or another has chosen since."""
        last, rows = self._last.get(phase, (None, None))
        if rows is None or last != layer:
            help = f"call layer {layer}, and then the layers that share its choice before another layer chooses"
            raise fail("KVC505", f"the rows that layer {layer} chooses are not at hand in this step", help=help)
        return rows
