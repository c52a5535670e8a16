"""The artifact: a directory with `manifest.json` and `graphs/*.txt`, written whole or not at all.

Equal specs compiled by equal versions give equal bytes: no times, no machine paths, no pickle. Loading rebuilds every
graph from its text.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kvc import __version__
from kvc.artifact_integrity import unlike_signatures
from kvc.compiler_passes.manager import violations
from kvc.diagnostics import KvcError, Source, fail
from kvc.field_types import wrong_field
from kvc.graphs.constant_params import wrong_params
from kvc.graphs.program import Program, program_from_json
from kvc.graphs.symbols import DTYPE_NAMES
from kvc.graphs.text import parse_graph, print_graph
from kvc.plan.integrity import contradictions
from kvc.plan.types import Plan

FORMAT = 2  # of the directory; raised when an older kvc could misread a newer artifact
MANIFEST = "manifest.json"
_FIRST_LINES = b'{\n "accepts": {\n  "'  # of a manifest: its keys are sorted


@dataclass(frozen=True)
class Artifact:
    """A compiled spec in memory.

    ``spec`` is the spec as plain data with its digest, ``passes`` what each pass did and why not, both JSON data.
    """

    spec: dict[str, Any]
    plan: Plan
    program: Program
    passes: list[dict[str, Any]]

    def __repr__(self) -> str:
        program = self.program
        layers = f"{len(program.bindings)} layers"
        return f"<artifact of {program.name}: {layers}, activations {program.dtype}, for {program.device}>"

    def manifest(self) -> dict[str, Any]:
        """Everything but the graph texts, as `manifest.json` holds it."""
        body = {
            "format": FORMAT,
            "versions": {"kvc": __version__, "torch": torch.__version__.split("+")[0]},
            "spec": self.spec,
            "plan": self.plan.to_json(),
            "program": self.program.to_json(),
            "accepts": accepted_inputs(self.program),
            "passes": self.passes,
            "graphs": {name: _sha256(text) for name, text in self.graph_texts().items()},
        }
        text = _compact(body)
        return json.loads(text) | {"digest": _sha256(text)}

    def graph_texts(self) -> dict[str, str]:
        """Graph name -> canonical text."""
        return {name: print_graph(graph) for name, graph in sorted(self.program.named_graphs().items())}


def accepted_inputs(program: Program) -> dict[str, dict[str, list[str]]]:
    """Graph name -> input -> element types the graph takes without a copy: its own, then codes that it may hold."""
    return {
        f"{signature}.{phase}": {
            str(node.target): [DTYPE_NAMES[node.meta["val"].dtype], *node.meta.get("accepts", ())]
            for node in graph.placeholders
            if node.meta["role"] in ("input", "staging")
        }
        for (signature, phase), graph in program.graphs.items()
    }


def _dump(data: Any) -> str:
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _compact(data: Any) -> str:
    """What digests are made of: the C encoder writes it many times faster than `_dump`."""
    return json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ---- writing -----------------------------------------------------------------------------------------------------


def write_artifact(artifact: Artifact, directory: str | Path, force: bool = False) -> Path:
    """Write ``artifact`` aside and rename it to ``directory`` when it is whole.

    An existing artifact is replaced only with ``force``; anything else there is never touched. Raises KvcError KVC401
    where something is in the way, KVC402 where the place cannot be written.
    """
    target = Path(directory)
    check_replaceable(target, force)
    texts = artifact.graph_texts()
    files = {f"graphs/{name}.txt": text for name, text in texts.items()} | {MANIFEST: _dump(artifact.manifest())}
    try:
        _write_files(target, files, force)
    except OSError as error:
        raise fail(
            "KVC402", f"cannot write {target}: {error.strerror}", help="choose a writable place with -o"
        ) from error
    return target


def check_replaceable(target: Path, force: bool) -> None:
    """Raise KVC401 unless ``target`` is free, or an artifact that ``force`` allows to replace."""
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not _looks_written_by_kvc(target):
        raise fail("KVC401", f"{target} exists and is not an artifact", help="choose another directory with -o")
    if not force:
        raise fail("KVC401", f"{target} exists", help="replace it with --force, or choose another directory with -o")


def _looks_written_by_kvc(directory: Path) -> bool:
    """Whether a directory, which may be damaged, is an artifact: many other things have a `manifest.json`."""
    graphs = (directory / "graphs").glob("*.txt") if (directory / MANIFEST).is_file() else ()
    return any(_starts_with(path, b"graph ") for path in graphs) or _starts_with(directory / MANIFEST, _FIRST_LINES)


def _starts_with(path: Path, start: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(start)) == start
    except OSError:
        return False


def _write_files(target: Path, files: Mapping[str, str], force: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, old = (_aside(target, what) for what in _ASIDE)
    _remove(partial)  # of a killed process that had this one's number
    try:
        for name, text in files.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        check_replaceable(target, force)  # another writer may have been faster
        _replace(target, partial, old)
        _remove_leftovers(target)
    finally:
        _remove(partial)


_ASIDE = ("partial", "replaced")


def _aside(target: Path, what: str) -> Path:
    return target.parent / f".{target.name}.{what}-{os.getpid()}"


def _replace(target: Path, whole: Path, old: Path) -> None:
    """Rename ``whole`` to ``target``; what it replaces is put aside first, back on failure, and removed last."""
    if target.exists():
        _remove(old)
        target.rename(old)
    try:
        whole.rename(target)
    except OSError:
        if not target.exists():  # else another writer was faster, and what it wrote stays
            old.rename(target)
        raise
    finally:
        if target.exists():
            _remove(old)


def _remove(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what killed writers of the same artifact left behind, once there is a whole one again."""
    leftover = re.compile(rf"\.{re.escape(target.name)}\.(?:{'|'.join(_ASIDE)})-([0-9]{{1,9}})")
    for path in target.parent.iterdir():
        found = leftover.fullmatch(path.name)
        if found and not _alive(int(found[1])):
            _remove(path)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to somebody else
        return True
    return True


# ---- reading -----------------------------------------------------------------------------------------------------


def is_artifact(path: str | Path) -> bool:
    """Whether ``path`` looks like an artifact rather than a spec."""
    return Path(path).is_dir()


def read_artifact(directory: str | Path) -> Artifact:
    """Read and verify an artifact.

    Raises KvcError: KVC403 not an artifact, KVC404 another format, KVC405 damaged (cut off, changed, a file missing).
    """
    root = Path(directory)
    manifest = _read_manifest(root)
    with _damage(root / MANIFEST):
        graphs = {name: _read_graph(root, name, digest) for name, digest in manifest["graphs"].items()}
        artifact = Artifact(
            spec=manifest["spec"],
            plan=Plan.from_json(manifest["plan"]),
            program=program_from_json(manifest["program"], graphs),
            passes=manifest["passes"],
        )
        problem = next(_contradictions(artifact, manifest), None)
    if problem:
        raise _damaged(root / MANIFEST, problem)
    return artifact


def _contradictions(artifact: Artifact, manifest: dict[str, Any]) -> Iterator[str]:
    """What is wrong with an artifact whose digests are right; the runtime relies on nothing being found here."""
    plan, program = artifact.plan, artifact.program
    wrong = wrong_field(plan, "plan") or wrong_field(program, "program")
    if wrong:
        yield f"{wrong} is of another type"
    yield from contradictions(plan)
    yield from violations(program, [done["pass"] for done in artifact.passes])
    buffers = {(buffer.layer, buffer.role): (buffer.pool, buffer.index) for buffer in plan.buffers}
    bound = ((b.layer, role, place) for b in program.bindings for role, place in b.pools.items())
    if any(buffers.get((layer, role)) != place for layer, role, place in bound):
        yield "program.bindings: a layer is bound to a page that the plan does not give it"
    yield from wrong_params(program.constants)
    yield from unlike_signatures(plan, program)
    yield from _unlike_its_target(artifact)
    if manifest["accepts"] != accepted_inputs(program):
        yield "accepts: not the inputs of the graphs"
    if artifact.spec["digest"] != plan.digest or type(artifact.spec["file"]) is not str:
        yield "spec: not the one of the plan"


def _unlike_its_target(artifact: Artifact) -> Iterator[str]:
    program, target = artifact.program, artifact.spec["values"]["target"]
    limits = [target[name] for name in ("max_sequences", "max_seq_len", "max_tokens")]
    if any(type(limit) is not int or limit < 1 for limit in limits):
        yield "spec.values.target: limits are numbers above 0"
    pages = (-(-target["max_seq_len"] // cycle.tokens_per_page) for cycle in artifact.plan.lifecycles)
    if program.table_width != max(pages):
        yield "program.table_width is not that of the longest sequence"
    buckets = program.buckets
    if program.max_tokens != target["max_tokens"]:
        yield "program.max_tokens is not that of the target"
    if not buckets or buckets[0] < 1 or sorted(set(buckets)) != list(buckets) or buckets[-1] != limits[0]:
        yield "program.buckets do not ascend to max_sequences"


def _read_manifest(root: Path) -> dict[str, Any]:
    path = root / MANIFEST
    if not path.is_file():
        what = f"is not an artifact: it has no {MANIFEST}" if root.exists() else "does not exist"
        raise fail("KVC403", f"{root} {what}", help="make an artifact with kvc compile SPEC -o DIR")
    with _damage(path):
        manifest = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise fail(
            "KVC403", f"{path} was not written by kvc", source=Source(str(path)), help="make one with kvc compile"
        )
    if manifest["format"] != FORMAT:
        versions = manifest.get("versions") or {}
        writer = versions.get("kvc", "?") if isinstance(versions, dict) else "?"
        message = f"format {manifest['format']} (kvc {writer}); this is kvc {__version__}, which reads format {FORMAT}"
        raise fail("KVC404", message, source=Source(str(path)), help="compile the spec again with this kvc")
    _check_digest(path, manifest)
    return manifest


def _check_digest(path: Path, manifest: dict[str, Any]) -> None:
    body = {key: value for key, value in manifest.items() if key != "digest"}
    if manifest.get("digest") != _sha256(_compact(body)):
        raise _damaged(path, "its digest does not match its content")


def _read_graph(root: Path, name: str, digest: str) -> Any:
    path = root / "graphs" / f"{Path(name).name}.txt"
    if not path.is_file():
        raise _damaged(path, "the file is missing")
    with _damage(path):
        text = path.read_text(encoding="utf-8")
    if _sha256(text) != digest:
        raise _damaged(path, "its digest is not the one in the manifest")
    return parse_graph(text, str(path))


def _damaged(path: Path, reason: str, source: Source | None = None) -> KvcError:
    message = f"the artifact is damaged: {reason}"
    return fail("KVC405", message, source=source or Source(str(path)), help="compile the spec again with --force")


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Name the file where reading it breaks down, whatever is in it."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise _damaged(path, error.msg, Source(str(path), error.lineno, error.colno)) from error
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
