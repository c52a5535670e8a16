"""Spec -> plan -> program -> passes -> artifact, in one call."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kvc.artifact import Artifact, write_artifact
from kvc.compiler_passes.manager import CompileLog, run_passes
from kvc.diagnostics import Source
from kvc.graphs.lowering.lower import lower
from kvc.graphs.program import Program
from kvc.plan import make_plan
from kvc.specs import load_spec
from kvc.specs.resolved import ResolvedSpec

PrintAfter = Callable[[str, Program], None]


@dataclass(frozen=True)
class Compiled:
    """A compiled spec and what each pass did to it."""

    artifact: Artifact
    log: CompileLog

    def write(self, directory: str | Path, force: bool = False) -> Path:
        """Write the artifact; see `kvc.artifact.write_artifact`."""
        return write_artifact(self.artifact, directory, force)


def compile_spec(
    spec: str | Path | ResolvedSpec,
    *,
    device_bytes: int | None = None,
    after_pass: PrintAfter | None = None,
    optimise: bool = True,
) -> Compiled:
    """Compile a spec file, a library name or a resolved spec in memory.

    ``device_bytes`` overrides the spec's memory size in the plan; ``after_pass`` is called with each pass's name and
    program; ``optimise=False`` runs only what a program needs to be complete, for comparison. Raises KvcError with
    every finding of the spec, KVC3xx where a pass fails or a required one does not fire.
    """
    resolved = without_folders(spec if isinstance(spec, ResolvedSpec) else load_spec(spec))
    plan = make_plan(resolved, device_bytes)
    program, log = run_passes(lower(resolved, plan), resolved.require, after_pass=after_pass, optimise=optimise)
    description = {"file": resolved.file, "digest": resolved.digest, "values": resolved.values}
    return Compiled(Artifact(description, plan, program, log.to_json()), log)


def without_folders(spec: ResolvedSpec) -> ResolvedSpec:
    """The spec citing file names only: artifacts hold no path of the machine that made them."""
    runs = tuple(replace(run, source=_base_name(run.source)) for run in spec.runs)
    return replace(spec, file=Path(spec.file).name, runs=runs)


def _base_name(source: Source) -> Source:
    return replace(source, path=Path(source.path).name)
