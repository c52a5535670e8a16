"""Runs the passes in order, verifies the program after each, and keeps the log."""

import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvc.compiler_passes.assign_layouts import AssignLayouts
from kvc.compiler_passes.canonicalize import Canonicalize
from kvc.compiler_passes.capture_cuda_graphs import CaptureCudaGraphs
from kvc.compiler_passes.elide_requantize import ElideRequantize
from kvc.compiler_passes.fold_gather_into_attention import FoldGatherIntoAttention
from kvc.compiler_passes.fold_overlay import FoldOverlay
from kvc.compiler_passes.fuse_append import FuseAppend
from kvc.compiler_passes.fuse_expand_quantize import FuseExpandQuantize
from kvc.compiler_passes.fuse_rope_quantize import FuseRopeQuantize
from kvc.compiler_passes.hoist_step_invariants import HoistStepInvariants
from kvc.compiler_passes.infra import Miss, ProgramPass, Result, count_calls
from kvc.compiler_passes.plan_workspace import PlanWorkspace
from kvc.compiler_passes.select_kernels import SelectKernels
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify
from kvc.diagnostics import Diagnostic, KvcError, fail
from kvc.graphs.program import Program
from kvc.graphs.text import print_graph

PIPELINE: tuple[ProgramPass, ...] = (
    Canonicalize(),
    HoistStepInvariants(),
    FuseRopeQuantize(),
    FuseAppend(),
    FoldOverlay(),
    FoldGatherIntoAttention(),
    FuseExpandQuantize(),
    ElideRequantize(),
    AssignLayouts(),
    SelectKernels(),
    PlanWorkspace(),
    CaptureCudaGraphs(),
)

Printer = Callable[[str, str], None]


@dataclass(frozen=True)
class PassRecord:
    """One line of the log: calls before and after over all graphs, and what the pass reported."""

    name: str
    nodes_before: int
    nodes_after: int
    seconds: float
    result: Result

    @property
    def line(self) -> str:
        """`fuse_append  fired 2  14 -> 12 nodes  3 ms`, aligned, with the number of misses and the detail if any."""
        nodes = f"{self.nodes_before} -> {self.nodes_after} nodes"
        extra = [f"missed {len(self.result.misses)}"] if self.result.misses else []
        extra += [self.result.detail] if self.result.detail else []
        columns = f"{self.name:<26} fired {self.result.fired:<3} {nodes:<16} {self.seconds * 1e3:4.0f} ms"
        return "  ".join((columns, *extra))

    @property
    def explanation(self) -> list[str]:
        """Why the pass did not fire where it might have, and its notes; indented lines."""
        misses = [f"  {line}" for miss in self.result.misses for line in f"missed in {miss}".splitlines()]
        return misses + [f"  note: {note}" for note in self.result.notes]

    def to_json(self) -> dict[str, Any]:
        """Plain data without the time, which is not the same twice."""
        return {
            "pass": self.name,
            "fired": self.result.fired,
            "fired_in": dict(self.result.fired_in),
            "nodes": [self.nodes_before, self.nodes_after],
            "detail": self.result.detail,
            "misses": [miss.to_json() for miss in self.result.misses],
            "notes": list(self.result.notes),
        }


@dataclass(frozen=True)
class CompileLog:
    """What every pass did, in order."""

    records: tuple[PassRecord, ...]

    def lines(self, explain: bool = False) -> list[str]:
        """One line a pass; ``explain`` adds the misses with their reasons, and the notes."""
        return [line for r in self.records for line in (r.line, *(r.explanation if explain else ()))]

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data for the manifest."""
        return [record.to_json() for record in self.records]


def run_passes(
    program: Program,
    *,
    require: Sequence[str] = (),
    print_after: str | None = None,
    printer: Printer | None = None,
    passes: Sequence[ProgramPass] = PIPELINE,
) -> tuple[Program, CompileLog]:
    """Run ``passes`` on a lowered program and verify it after each.

    ``require`` names passes that must fire everywhere they could; ``print_after`` a pass (or `all`) after which
    ``printer(pass, text)`` gets the text of every graph. Raises KvcError: KVC310 an unknown pass, KVC311 a pass that
    broke down, KVC312 a required pass that did not fire, KVC313 a pass out of order, KVC314 and KVC315 from passes,
    KVC320 and up where the program is not legal.
    """
    check_names((*require, *((print_after,) if print_after and print_after != "all" else ())), passes)
    stage, records = Stage.LOWERED, list[PassRecord]()
    verify(program, stage, after="lowering")
    for one in passes:
        records.append(_run_one(one, program, stage, [record.name for record in records]))
        result = records[-1].result
        if one.name in require:
            _check_fired(one, result, program)
        stage, program = max(stage, one.ensures), result.program
        if printer is not None and print_after in (one.name, "all"):
            printer(one.name, program_text(program))
    return program, CompileLog(tuple(records))


def violations(program: Program, done: Iterable[str]) -> list[str]:
    """What makes a program that went through the passes ``done`` illegal, as a verifier's messages; [] if nothing."""
    stages = [one.ensures for one in PIPELINE if one.name in set(done)]
    try:
        verify(program, max(stages, default=Stage.LOWERED), after="loading")
    except KvcError as error:
        return [found.message for found in error.diagnostics]
    return []


def program_text(program: Program) -> str:
    """The canonical text of every graph of a program, prologues first."""
    return "\n".join(print_graph(graph) for graph in program.named_graphs().values())


def check_names(names: Iterable[str], passes: Sequence[ProgramPass] = PIPELINE) -> None:
    """Raise KVC310 for every name that is no pass of the pipeline, with the nearest one."""
    known = [one.name for one in passes]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise KvcError(
            Diagnostic("KVC310", f"there is no pass {name!r}", help=_suggest(name, known)) for name in unknown
        )


def _suggest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"passes: {', '.join(known)}"


def _where(one: ProgramPass, done: Sequence[str]) -> str:
    return f"pass {one.name} failed after [{', '.join(done)}]"


def _run_one(one: ProgramPass, program: Program, stage: Stage, done: Sequence[str]) -> PassRecord:
    """Run one pass and verify what it made."""
    if stage < one.requires:
        raise fail("KVC313", f"{_where(one, done)}: it needs stage {one.requires.name}, the program is {stage.name}")
    started = time.perf_counter()
    result = _guarded(one, program, done)
    seconds = time.perf_counter() - started
    verify(result.program, max(stage, one.ensures), after=one.name, before=program)
    return PassRecord(one.name, count_calls(program), count_calls(result.program), seconds, result)


def _guarded(one: ProgramPass, program: Program, done: Sequence[str]) -> Result:
    """The result of a pass; whatever it raises names it and the passes before it."""
    try:
        return one.run(program)
    except KvcError as error:
        found = (replace(d, message=f"{_where(one, done)}: {d.message}") for d in error.diagnostics)
        raise KvcError(found) from error
    except Exception as error:
        raise fail("KVC311", f"{_where(one, done)}: {type(error).__name__}: {error}") from error


def _check_fired(one: ProgramPass, result: Result, before: Program) -> None:
    """A required pass must have fired, and nothing it looks for may be left."""
    if result.fired and not result.misses:
        return
    misses = result.misses or one.nearest(before)
    if not misses:
        raise fail("KVC312", f"required pass {one.name} did not fire: the program has nothing that it could rewrite")
    raise KvcError(_not_fired(one, miss) for miss in misses)


def _not_fired(one: ProgramPass, miss: Miss) -> Diagnostic:
    message = f"required pass {one.name} did not fire in {miss.graph}: {miss.reason}"
    return Diagnostic("KVC312", message, miss.source, help=f"nearest: {miss.at}")
