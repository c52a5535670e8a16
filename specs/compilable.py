"""What of a spec cannot be compiled yet: everything that can be planned is a valid spec, lowering takes less.

Read from `LAYER_CAPABILITIES` alone, so that a new row there lifts a refusal; no torch, so that `kvc check` can say it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvc.capabilities import LAYER_CAPABILITIES, STAGED_KINDS, LayerCapability
from kvc.diagnostics import Diagnostic, KvcError
from kvc.specs.resolved import LayerRun, ResolvedSpec
from kvc.specs.suggestions import listed

_Rows = tuple[LayerCapability, ...]


@dataclass(frozen=True)
class _Step:
    """One property of a layer: ``wanted`` in words, which rows have it, and the code where none does."""

    code: str
    wanted: Callable[[LayerRun], str]
    matches: Callable[[LayerRun, LayerCapability], bool]
    offered: Callable[[LayerCapability], str]


def _options(run: LayerRun) -> str:
    return " and ".join(run.shape.options) or "no options"


def _twin(run: LayerRun) -> str:
    return f"a twin in {run.retain.encoding}" if run.retain else "no twin"


def _has_twin(run: LayerRun, row: LayerCapability) -> bool:
    return run.retain is None or run.retain.encoding in row.twins


# In this order: a kind that cannot be compiled is not refused for its encoding too.
_STEPS = (
    _Step(
        "KVC103",
        lambda run: f"kind {run.shape.capability}",
        lambda run, row: row.kind == run.shape.capability,
        lambda row: f"kind {row.kind}",
    ),
    _Step(
        "KVC111",
        lambda run: f"coverage {run.coverage}",
        lambda run, row: row.coverage == run.coverage.kind,
        lambda row: f"coverage {row.coverage}",
    ),
    _Step(
        "KVC140",
        lambda run: f"encoding {run.encoding}",
        lambda run, row: row.encoding == run.encoding,
        lambda row: row.encoding,
    ),
    _Step("KVC140", _twin, _has_twin, lambda row: listed(row.twins) or "no twin"),
    _Step(
        "KVC112",
        _options,
        lambda run, row: set(run.shape.options) <= set(row.options),
        lambda row: listed(row.options) or "no options",
    ),
    _Step(
        "KVC120",
        lambda run: f"context attention in {run.context.dtype}",
        lambda run, row: run.context.dtype in row.context,
        lambda row: f"context attention of {row.kind} layers in {listed(row.context)}",
    ),
    _Step(
        "KVC160",
        lambda run: f"attention by the {run.kernel}",
        lambda run, row: run.kernel == "kvc" or row.kind in STAGED_KINDS,
        lambda row: f"attention of {row.kind} layers by kvc{' or an engine' if row.kind in STAGED_KINDS else ''}",
    ),
    _Step(
        "KVC121",
        lambda run: f"a {run.domain} layer",
        lambda run, row: run.domain == "target" or row.draft,
        lambda row: "draft layers" if row.draft else "target layers alone",
    ),
)


def _refusal(run: LayerRun) -> Diagnostic | None:
    rows: _Rows = LAYER_CAPABILITIES
    for step in _STEPS:
        left = tuple(row for row in rows if step.matches(run, row))
        if not left:
            offered = dict.fromkeys(step.offered(row) for row in rows)
            message = f"{_layers(run)} cannot be compiled yet: {step.wanted(run)} in the capability row {_row(run)}"
            help = f"it can be planned; compiled so far: {', '.join(offered)}"
            return Diagnostic(step.code, message, run.source, "", help)
        rows = left
    return None


def _layers(run: LayerRun) -> str:
    return f"layer {run.first}" if run.count == 1 else f"layers {run.first}-{run.first + run.count - 1}"


def _row(run: LayerRun) -> str:
    """The row of `LAYER_CAPABILITIES` that the layer would need."""
    twin = run.retain.encoding if run.retain else "no twin"
    return " | ".join((run.shape.capability, run.coverage.kind, run.encoding, twin, run.domain))


def compile_findings(spec: ResolvedSpec) -> Iterator[Diagnostic]:
    """What cannot be compiled, one finding a spec line and reason."""
    seen = set()
    for run in spec.runs:
        found = _refusal(run)
        key = found and (found.code, found.source, found.help)
        if found and key not in seen:
            seen.add(key)
            yield found


def require_compilable(spec: ResolvedSpec) -> None:
    """Raise KvcError with every finding of `compile_findings`."""
    found = tuple(compile_findings(spec))
    if found:
        raise KvcError(found)
