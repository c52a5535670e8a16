"""Spec -> plan -> program -> passes -> artifact, in one call."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvc.artifact import Artifact, write_artifact
from kvc.compiler_passes.infra import ProgramPass
from kvc.compiler_passes.manager import PIPELINE, CompileLog, Printer, run_passes
from kvc.diagnostics import KvcError, Source
from kvc.graphs.lowering.lower import lower
from kvc.plan import make_plan
from kvc.specs import load_spec
from kvc.specs.resolved import ResolvedSpec


@dataclass(frozen=True)
class Compiled:
    """A compiled spec and what each pass did to it."""

    artifact: Artifact
    log: CompileLog = field(repr=False)

    def write(self, directory: str | Path, force: bool = False) -> Path:
        """Write the artifact; see `kvc.artifact.write_artifact`."""
        return write_artifact(self.artifact, directory, force)


def compile_spec(
    spec: str | Path | ResolvedSpec,
    *,
    device_bytes: int | None = None,
    passes: Sequence[ProgramPass] = PIPELINE,
    print_after: str | None = None,
    printer: Printer | None = None,
) -> Compiled:
    """Compile a spec file, a library name or a resolved spec in memory.

    ``device_bytes`` overrides the memory size in the plan; ``print_after`` names a pass, or `all`, after which
    ``printer(pass, text)`` gets the text of every graph. Raises KvcError with every finding of the spec, or KVC3xx
    where a pass fails or a required one does not fire.
    """
    given = spec if isinstance(spec, ResolvedSpec) else load_spec(spec)
    resolved = without_folders(given)
    plan = make_plan(resolved, device_bytes)
    with _citing(given.file):
        program, log = run_passes(
            lower(resolved, plan), require=resolved.require, print_after=print_after, printer=printer, passes=passes
        )
    description = {"file": resolved.file, "digest": resolved.digest, "values": resolved.values}
    return Compiled(Artifact(description, plan, program, log.to_json()), log)


def without_folders(spec: ResolvedSpec) -> ResolvedSpec:
    """The spec citing file names only: artifacts hold no path of the machine that made them."""
    runs = tuple(replace(run, source=_base_name(run.source)) for run in spec.runs)
    return replace(spec, file=_file_name(spec.file), runs=runs)


@contextmanager
def _citing(file: str) -> Iterator[None]:
    """Let findings cite ``file`` as the user gave it, not by its bare name."""
    try:
        yield
    except KvcError as error:
        name = _file_name(file)
        raise KvcError(
            replace(found, source=replace(found.source, path=file))
            if found.source and found.source.path == name
            else found
            for found in error.diagnostics
        ) from error


def _base_name(source: Source) -> Source:
    return replace(source, path=_file_name(source.path))


def _file_name(path: str) -> str:
    """The bare name in printable characters, the same in every locale: graph text is one statement a line."""
    name = Path(path).name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
