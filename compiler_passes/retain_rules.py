"""Every call that reads a twin takes the same rows from it: those that the layer retains, whatever the phase."""

from collections.abc import Iterator
from typing import Any

import torch.fx

from kvc.compiler_passes.effects import argument, takes
from kvc.graphs.graph import is_op, qualified_name
from kvc.graphs.program import Phase, Program, signature_of

_RETAINED = ("first", "last", "unit")


def twins_are_read_as_retained(program: Program, before: Program | None) -> Iterator[tuple[str, str]]:
    """`first`, `last` and `unit` of a call are those of its layer's signature: the manager keeps no other rows."""
    for (name, phase), graph in program.graphs.items():
        wanted = _wanted(program, signature_of(name))
        for call in graph.calls:
            found = _read(call)
            if found is not None and found != wanted:
                yield (
                    f"{name}.{phase}",
                    f"{call.target} reads {_text(found)} of a twin; {_text(wanted)} is retained",
                )
            if found is not None and not _is_committed(argument(call, "committed"), program, phase):
                yield f"{name}.{phase}", f"{call.target} takes its retained rows from another length than the committed"
    yield from _unread_twins(program)


def _is_committed(length: torch.fx.Node, program: Program, phase: Phase) -> bool:
    """Whether it is the committed length of the step, as corrected on the device where that is done."""
    prologue = program.prologues.get(phase)
    made = length
    if length.meta.get("role") == "prologue":
        if prologue is None or str(length.target) not in prologue.outputs:
            return True  # another rule says that it is missing
        made = prologue.outputs[str(length.target)]
    if any(section.name == "accepted_rows" for section in program.step.get(phase, ())):
        return is_op(made, "kvc.correct_lengths")
    return made.meta.get("role") == "step" and qualified_name(made) == "step.committed"


def _unread_twins(program: Program) -> Iterator[tuple[str, str]]:
    """Phases of a layer that retains rows, and whose graphs read none of them."""
    read: dict[tuple[str, str], bool] = {}
    for (name, phase), graph in program.graphs.items():
        key = signature_of(name), phase
        read[key] = read.get(key, False) or any(_read(call) is not None for call in graph.calls)
    for (signature, of_phase), is_read in read.items():
        if not is_read and _wanted(program, signature) is not None:
            yield f"{signature}.{of_phase}", "retains rows and reads no twin: all would come from the history"


def _wanted(program: Program, signature: str) -> dict[str, Any] | None:
    retain = program.signatures.get(signature, {}).get("retain")
    return {name: retain.get(name) for name in _RETAINED} if isinstance(retain, dict) else None


def _read(call: torch.fx.Node) -> dict[str, Any] | None:
    """What a call takes from a twin; None where it is given none."""
    if not takes(call, "first") or argument(call, "twin") is None:
        return None
    return {name: argument(call, name) for name in _RETAINED}


def _text(retained: dict[str, Any] | None) -> str:
    if retained is None:
        return "nothing"
    return f"first {retained['first']}, last {retained['last']} by the {retained['unit']}"
