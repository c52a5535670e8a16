"""From a file or a library name to a checked spec."""

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kvc.diagnostics import Diagnostic, KvcError, Source
from kvc.specs.aliases import expand_aliases
from kvc.specs.checks import RULES
from kvc.specs.findings import schema_finding
from kvc.specs.library import locate
from kvc.specs.models import Parallel, Spec
from kvc.specs.nodes import document_path, place
from kvc.specs.resolve import resolve
from kvc.specs.resolved import ResolvedSpec
from kvc.specs.yaml_reader import Document, parse_document, read_document

Device = tuple[Literal["cpu", "cuda"], str | None]


def load_spec(
    path_or_library_name: str | Path, tensor_parallel: int | None = None, device: Device | None = None
) -> ResolvedSpec:
    """Read, check and resolve a spec: a path, or a name of the library (`llama-3.1-8b-fp8`).

    ``tensor_parallel`` stands in for the spec's `parallel.tensor`, ``device``, `("cuda", "sm_90")` or `("cpu", None)`,
    for its `target.device` and `target.arch`. Raises KvcError with every finding, in the order
    of the file.
    """
    file, shown_as = locate(path_or_library_name)
    return _resolved(read_document(file, shown_as), tensor_parallel, device)


def load_spec_text(text: str, path: str = "<text>", tensor_parallel: int | None = None) -> ResolvedSpec:
    """Like `load_spec` for YAML text; findings cite ``path``."""
    return _resolved(parse_document(text, path), tensor_parallel)


def _resolved(document: Document, tensor_parallel: int | None, device: Device | None = None) -> ResolvedSpec:
    return resolve(validate(document, tensor_parallel, device), document)


def _in_file_order(findings: list[Diagnostic]) -> list[Diagnostic]:
    places = [found.source or Source("") for found in findings]
    order = sorted(range(len(findings)), key=lambda index: (places[index].line, places[index].column))
    return [findings[index] for index in order]


def validate(document: Document, tensor_parallel: int | None = None, device: Device | None = None) -> Spec:
    """The spec of a document. Raises KvcError with the findings of the reader and the schema, or else of the checks."""
    findings = list(document.findings)
    try:
        spec = Spec.model_validate(document.root.plain())
    except ValidationError as error:
        # A value that the reader refused has no meaning: what the schema thinks of it would only confuse.
        refused = {found.source for found in findings}
        schema = [schema_finding(details, document.root) for details in error.errors(include_url=False)]
        findings += [found for found in schema if found.source not in refused]
        raise KvcError(_in_file_order(findings)) from None
    spec = expand_aliases(spec)
    if tensor_parallel is not None:
        spec = spec.model_copy(update={"parallel": Parallel(tensor=tensor_parallel)})
    if device is not None:
        target = spec.target.model_copy(update=dict(zip(("device", "arch"), device, strict=True)))
        spec = spec.model_copy(update={"target": target})
    findings += check(spec, document)
    if findings:
        raise KvcError(_in_file_order(findings))
    return spec


def check(spec: Spec, document: Document) -> list[Diagnostic]:
    """Findings of all rules."""
    root = document.root
    return [
        Diagnostic(rule.code, hit.message, place(root, hit.loc), document_path(root, hit.loc), hit.help)
        for rule in RULES
        for hit in rule.find(spec)
    ]
