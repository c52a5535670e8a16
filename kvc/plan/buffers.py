"""From the layers of a spec to the buffers they need, run by run: adjacent equal layers stay one row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kvc.diagnostics import Source, fail
from kvc.encodings import ENCODINGS, Field, PageLayout, StateTensor, page_layout, state_layout
from kvc.specs.resolved import Coverage, DeepseekV4Shape, Domain, LayerRun, MlaShape, RecurrentShape, ResolvedSpec


@dataclass(frozen=True)
class BufferRun:
    """One buffer of each of ``layers``: what it holds (``role``), how it is stored and when its pages are stale.

    ``tokens_per_page`` are source tokens; a page of ``layout`` has as many rows, fewer where they are compressed, or
    one where it holds ``states``. ``shards`` as in `LayerRun`.
    """

    kind: str
    role: str
    layers: range
    fields: tuple[Field, ...]
    encoding: str
    coverage: Coverage
    domain: Domain
    layout: PageLayout
    source: Source
    tokens_per_page: int
    shards: int = 1
    states: tuple[StateTensor, ...] = ()

    @property
    def name(self) -> str:
        """What groups of such buffers are called: the layer kind, or the role of what stands beside the history."""
        return self.kind if self.role in ("history", "state") else self.role


def _layout(run: LayerRun, fields: tuple[Field, ...], encoding: str, rows: int) -> PageLayout:
    try:
        return page_layout(ENCODINGS[encoding], fields, rows)
    except ValueError as error:
        message = f"layer {run.first} cannot be stored as {encoding}: {error}"
        raise fail("KVC201", message, source=run.source, help="choose a width that divides, or bf16") from error


def _rows(
    run: LayerRun, role: str, fields: tuple[Field, ...], encoding: str, coverage: Coverage, shards: int
) -> BufferRun:
    """A buffer of rows of tokens, or of groups of ``coverage.ratio`` tokens."""
    return BufferRun(
        kind=run.shape.kind,
        role=role,
        layers=run.layers,
        fields=fields,
        encoding=encoding,
        coverage=coverage,
        domain=run.domain,
        layout=_layout(run, fields, encoding, run.tokens_per_page // coverage.ratio),
        source=run.source,
        tokens_per_page=run.tokens_per_page,
        shards=shards,
    )


def _states(run: LayerRun, role: str, states: tuple[StateTensor, ...], coverage: Coverage) -> BufferRun:
    """A buffer of one state a sequence."""
    return BufferRun(
        kind=run.shape.kind,
        role=role,
        layers=run.layers,
        fields=(),
        encoding="+".join(dict.fromkeys(state.dtype for state in states)),
        coverage=coverage,
        domain=run.domain,
        layout=state_layout(states),
        source=run.source,
        tokens_per_page=run.tokens_per_page,
        shards=run.shards,
        states=states,
    )


def _history(run: LayerRun) -> Iterator[BufferRun]:
    """The rows of a layer; none where it reads another layer's."""
    if run.shape.fields:
        yield _rows(run, "history", run.shape.fields, run.encoding, run.coverage, run.shards)


def _index_key(run: LayerRun) -> Iterator[BufferRun]:
    """Keys of an indexer: their pages come and go with the rows among which it chooses."""
    shape = run.shape
    if isinstance(shape, MlaShape | DeepseekV4Shape) and shape.indexer and not shape.indexer.shared:
        yield _rows(run, "index_key", shape.indexer.fields, shape.indexer.encoding, run.coverage, 1)


def _v4_window(run: LayerRun) -> Iterator[BufferRun]:
    """Plain rows beside compressed ones: a window, which has no twin, so all of it is in the twin's encoding."""
    shape = run.shape
    if isinstance(shape, DeepseekV4Shape) and shape.compressor:
        encoding = run.retain.encoding if run.retain else run.encoding
        yield _rows(run, "window", shape.fields, encoding, Coverage("window", shape.window), 1)


def _v4_waiting(run: LayerRun) -> Iterator[BufferRun]:
    """Tokens that wait to be compressed."""
    shape = run.shape
    if isinstance(shape, DeepseekV4Shape) and shape.compressor:
        yield _states(run, "compressor", shape.compressor.states, Coverage("rolling"))


def _recurrent(run: LayerRun) -> Iterator[BufferRun]:
    if isinstance(run.shape, RecurrentShape):
        yield _states(run, "state", run.shape.states, run.coverage)


def twin_coverage(coverage: Coverage, first: int, last: int) -> Coverage:
    """What the twin of a history with ``coverage`` keeps; the token in flight is one more than the last ones."""
    return Coverage("first_last", last + 1, first, coverage.ratio)


def _twin(run: LayerRun) -> Iterator[BufferRun]:
    """The first and last rows again, in the twin's encoding."""
    if run.retain and run.shape.fields:
        coverage = twin_coverage(run.coverage, run.retain.first, run.retain.last)
        yield _rows(run, "twin", run.shape.fields, run.retain.encoding, coverage, run.shards)


_Maker = Callable[[LayerRun], Iterator[BufferRun]]
_OF_LAYERS: tuple[_Maker, ...] = (_history, _index_key, _v4_window, _v4_waiting, _recurrent)


def buffer_runs(spec: ResolvedSpec) -> tuple[BufferRun, ...]:
    """Every buffer of the spec, one row a run of equal layers: in layer order, then the twins in layer order.

    Raises KvcError (KVC201) where a layer's widths do not divide into its encoding's groups.
    """
    made = [buffer for run in spec.runs for make in _OF_LAYERS for buffer in make(run)]
    twins = [buffer for run in spec.runs for buffer in _twin(run)]
    return tuple(made + twins)


def at_page_size(buffer: BufferRun, tokens_per_page: int) -> BufferRun:
    """The same buffer with pages of another size; ValueError where they do not hold whole compressed groups."""
    if buffer.states:
        return replace(buffer, tokens_per_page=tokens_per_page)
    rows, rest = divmod(tokens_per_page, buffer.coverage.ratio)
    if rest:
        raise ValueError(f"{tokens_per_page} tokens do not hold whole groups of {buffer.coverage.ratio}")
    layout = page_layout(ENCODINGS[buffer.encoding], buffer.fields, rows)
    return replace(buffer, layout=layout, tokens_per_page=tokens_per_page)
