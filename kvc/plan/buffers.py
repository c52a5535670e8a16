"""From the layers of a spec to the buffers they need, run by run: adjacent equal layers stay one row."""

from collections.abc import Callable
from dataclasses import dataclass

from kvc.diagnostics import Source, fail
from kvc.encodings import ENCODINGS, Field, PageLayout, page_layout
from kvc.specs.resolved import Coverage, Domain, LayerRun, ResolvedSpec


@dataclass(frozen=True)
class BufferRun:
    """One buffer of each of ``layers``: what it holds (``role``), how it is stored and when its pages are stale."""

    kind: str
    role: str
    layers: range
    fields: tuple[Field, ...]
    encoding: str
    coverage: Coverage
    domain: Domain
    layout: PageLayout
    source: Source


def _layout(run: LayerRun, fields: tuple[Field, ...], encoding: str) -> PageLayout:
    try:
        return page_layout(ENCODINGS[encoding], fields, run.tokens_per_page)
    except ValueError as error:
        message = f"layer {run.first} cannot be stored as {encoding}: {error}"
        raise fail("KVC201", message, source=run.source, help="choose a width that divides, or bf16") from error


def _history(run: LayerRun) -> BufferRun:
    """The buffer that every layer kind with a token history has."""
    return BufferRun(
        kind=run.shape.kind,
        role="history",
        layers=run.layers,
        fields=run.shape.fields,
        encoding=run.encoding,
        coverage=run.coverage,
        domain=run.domain,
        layout=_layout(run, run.shape.fields, run.encoding),
        source=run.source,
    )


# Layer kind -> the buffers of one of its layers, in page order.
_BUFFERS: dict[str, tuple[Callable[[LayerRun], BufferRun], ...]] = {"gqa": (_history,)}


def buffer_runs(spec: ResolvedSpec) -> tuple[BufferRun, ...]:
    """Every buffer of the spec, in layer order, one row a run of equal layers.

    Raises KvcError (KVC201) where a layer's widths do not divide into its encoding's groups.
    """
    return tuple(buffer(run) for run in spec.runs for buffer in _BUFFERS[run.shape.kind])
