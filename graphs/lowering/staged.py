"""Lowering of layers whose attention an engine computes: their history is staged, and their new rows are written back.

The kind of layer does not matter: rows come as they are to be stored, after RoPE, and go as they are read.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kvc.graphs.graph import Graph
from kvc.graphs.lowering.layer import LayerLowering, Node
from kvc.graphs.lowering.signature import Signature
from kvc.graphs.program import Phase

Operands = tuple[Node | list[Node | None] | None, ...]


class StagedLowering(LayerLowering):
    """Emits the parts of one layer; staging is [E, L, heads, dim] a field, E sequences and L rows of the engine's."""

    def __init__(self, name: str, signature: Signature) -> None:
        fields = signature.run.shape.fields
        super().__init__(name, signature, {field.name: (field.heads, field.dim) for field in fields})

    def _input(self, name: str, dims: tuple[int, ...]) -> Node:
        return self.b.placeholder("staging", name, self.dtype, ("E", "L", *dims))

    def _rope_table(self) -> None:
        """Rows come after RoPE."""

    def stage(self, phase: Phase) -> Graph:
        """Rows before the step in the context phase; in generation the step's own too, as stored."""
        step = self.step
        lengths = step.committed if phase == "context" else step.lengths
        tables = (self.pool, step.page_table, *self._of_twin(step.page_tables))
        operands = (list(self.inputs.values()), *tables, lengths, step.committed, *self._row_scales())
        self.call("stage_history", *operands, **self._rows(), **(self.twin.retained if self.twin else {}))
        return self.b.finish({})

    def write_back(self, phase: Phase) -> Graph:
        """The step's own rows to every pool of the layer, the same in both phases."""
        step = self.step
        twin, twin_rows = self._of_twin(step.write_rows)
        staging = (list(self.inputs.values()), step.positions, step.sequence_ids)
        operands = (self.pool, twin, *staging, step.write_rows["history"], twin_rows, *self._row_scales())
        self.call("write_back", *operands, **self._rows())
        return self.b.finish({})

    def _of_twin(self, places: Mapping[str, Node]) -> tuple[Node | None, Node | None]:
        """The twin's pool and what says where in it."""
        return (self.twin.pool, places["twin"]) if self.twin else (None, None)

    def _row_scales(self) -> Operands:
        """The scales of a row's fields in each pool."""
        return list(self.scales.values()), list(self.twin.scales) if self.twin else [None] * len(self.fields)

    def _rows(self) -> dict[str, Any]:
        """Attributes that say how rows are stored."""
        twin = {"twin_encoding": self.twin.retain.encoding} if self.twin else {}
        return {**self.history(), "fields": [field.name for field in self.fields], **twin}


def lower_stage(name: str, signature: Signature, phase: Phase) -> Graph:
    """The graph that stages a layer's history, not optimised."""
    return StagedLowering(name, signature).stage(phase)


def lower_write_back(name: str, signature: Signature, phase: Phase) -> Graph:
    """The graph that writes a step's rows back, not optimised."""
    return StagedLowering(name, signature).write_back(phase)


STAGED_PARTS: Mapping[str, Callable[[str, Signature, Phase], Graph]] = MappingProxyType(
    {"stage": lower_stage, "write_back": lower_write_back}
)
