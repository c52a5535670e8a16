"""What a layer derives from the packed step buffer: the same in every layer, so a pass moves it to the prologue."""

from dataclasses import dataclass

import torch
import torch.fx

from kvc.graphs.builder import GraphBuilder
from kvc.graphs.lowering.signature import Signature
from kvc.graphs.program import Section

_CORRECTION = (Section("scheduled", ("B",)), Section("accepted_rows", ("B",)))


def step_sections(lifecycles: int, corrected: bool = False) -> tuple[Section, ...]:
    """Host data of one phase of a step: slot ids, committed lengths, query prefix sums, the sequence of each token.

    ``corrected``: lengths are as if the step before had accepted all its tokens; the tokens of it that each sequence
    had, and its row there, say how they are corrected on the device.
    """
    plain = (
        Section("slot_tables", (lifecycles, "B", "W")),
        Section("committed", ("B",)),
        Section("query_starts", ("B + 1",)),
        Section("sequence_ids", ("T",)),
    )
    return plain + (_CORRECTION if corrected else ())


@dataclass(frozen=True)
class StepValues:
    """Nodes: ``positions`` [T], lengths [B]; page tables [B, W] and write rows [T] by what they are of; all int32."""

    page_tables: dict[str, torch.fx.Node]
    positions: torch.fx.Node
    write_rows: dict[str, torch.fx.Node]
    lengths: torch.fx.Node
    committed: torch.fx.Node
    query_starts: torch.fx.Node
    sequence_ids: torch.fx.Node

    @property
    def page_table(self) -> torch.fx.Node:
        """The history's."""
        return self.page_tables["history"]


def derive_step_values(b: GraphBuilder, signature: Signature, source: str) -> StepValues:
    """Declare the step's sections and compute what the layer needs of them."""
    lifecycles = max(signature.lifecycles) + 1
    slot_tables, assumed, query_starts, sequence_ids, *correction = (
        b.placeholder("step", section.name, torch.int32, section.dims)
        for section in step_sections(lifecycles, signature.corrected)
    )
    committed = _corrected(b, assumed, correction, source) if correction else assumed
    tables = b.call(
        "kvc.copy_page_tables",
        slot_tables,
        source=source,
        lifecycles=list(signature.lifecycles),
        pages_per_slot=list(signature.pages_per_slot),
        offsets=[0] * len(signature.lifecycles),
    )
    page_tables = {
        role: b.call("aten.select.int", tables, source=source, dim=0, index=buffer.pool)
        for role, buffer in signature.buffers.items()
    }
    positions, lengths = b.call("kvc.step_positions", committed, query_starts, sequence_ids, source=source)
    size = signature.run.tokens_per_page
    rows = {
        role: b.call("kvc.write_rows", table, positions, sequence_ids, source=source, tokens_per_page=size)
        for role, table in page_tables.items()
    }
    return StepValues(page_tables, positions, rows, lengths, committed, query_starts, sequence_ids)


def _corrected(b: GraphBuilder, assumed: torch.fx.Node, correction: list[torch.fx.Node], source: str) -> torch.fx.Node:
    """Committed lengths once the device knows how many tokens the step in flight accepted."""
    accepted = b.placeholder("feedback", "accepted", torch.int32, ("A",))
    corrected: torch.fx.Node = b.call("kvc.correct_lengths", assumed, *correction, accepted, source=source)
    return corrected
