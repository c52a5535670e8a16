"""What a cache takes beside its pools, and what a reader of its plan must know."""

from collections.abc import Iterator
from pathlib import PurePath

from kvc.plan.pooling import Pooling
from kvc.plan.stale import ceil_div
from kvc.plan.types import Overheads
from kvc.specs.compilable import compile_findings
from kvc.specs.resolved import LayerRun, ResolvedSpec, Rope, ScaleSource
from kvc.specs.scratch import UNIT, code_scale

_INT32 = _FLOAT32 = 4
_SCALE_OPERAND = 2 * _FLOAT32  # the scale, and the factor that quantizing multiplies by


def overheads(spec: ResolvedSpec, pooling: Pooling) -> Overheads:
    """Bytes on the device beside the pools."""
    return Overheads(
        scale_bytes=_SCALE_OPERAND * len(set(_scales(spec))),
        rope_bytes=_FLOAT32 * spec.target.max_seq_len * sum(rope.dim for rope in _ropes(spec)),
        table_bytes=_INT32 * _table_entries(spec, pooling),
        null_page_bytes=0,
        scratch_bytes=_scratch(spec),
    )


def _scratch(spec: ResolvedSpec) -> int | None:
    """0 where layers work on their inputs alone; what expands its rows is known once graphs are made."""
    unknown = any(run.shape.kind != "gqa" for run in spec.runs) or any(compile_findings(spec))
    return None if unknown else 0


def _scales(spec: ResolvedSpec) -> Iterator[tuple[str, float | str]]:
    """(encoding, scale) of every field: equal ones are one constant of the program, a checkpoint's one a layer."""
    for run in spec.runs:
        yield from _of_source(run, run.encoding, run.scales, "history")
        yield from _of_source(run, "fp8", run.context.scales, "context attention")
        if run.retain:
            yield from _of_source(run, run.retain.encoding, run.retain.scales, "twin")
        if code_scale(run) == UNIT:
            yield "fp8", 1.0


def _of_source(run: LayerRun, encoding: str, scales: ScaleSource, of: str) -> Iterator[tuple[str, float | str]]:
    yield from ((encoding, value) for _, value in scales.values)
    for layer in run.layers:
        yield from ((encoding, f"{field} of the {of} of layer {layer}") for field, _ in scales.names)


def _ropes(spec: ResolvedSpec) -> set[Rope]:
    """Tables of the program: rows of an engine come after RoPE."""
    return {run.shape.rope for run in spec.runs if run.shape.rope and run.kernel == "kvc"}


def _table_entries(spec: ResolvedSpec, pooling: Pooling) -> int:
    """Entries of the slot tables, one a lifecycle, and of the page tables, one a pool."""
    tables = len(pooling.members) + len(pooling.pools)
    width = max(ceil_div(spec.target.max_seq_len, members.tokens_per_page) for members in pooling.members)
    return tables * spec.target.max_sequences * width


def notes(spec: ResolvedSpec) -> tuple[str, ...]:
    """Notes that do not depend on the size of memory."""
    found = (*_parallel(spec), *_drafts(spec), *_of_the_spec(spec))
    return tuple(dict.fromkeys(found))


def _parallel(spec: ResolvedSpec) -> Iterator[str]:
    ranks = spec.tensor_parallel
    if ranks == 1:
        return
    yield f"bytes are of one of {ranks} tensor parallel ranks"
    for run in spec.runs:
        if run.shards < ranks:
            yield f"tensor parallelism: {_what(run)} of {run.shape.capability} layers {_copies(run.shards, ranks)}"


def _what(run: LayerRun) -> str:
    return {"gqa": "KV heads", "recurrent": "states"}.get(run.shape.kind, "the latent row (one for all heads)")


def _copies(shards: int, ranks: int) -> str:
    return (
        f"is whole on each of {ranks} ranks" if shards == 1 else f"divide into {shards}, {ranks // shards} copies each"
    )


def _drafts(spec: ResolvedSpec) -> Iterator[str]:
    if spec.draft:
        yield (
            f"every sequence holds room for {spec.draft.max_tokens} drafted tokens, which may be rolled back; windows, "
            "twins and states are wider by them"
        )


def _of_the_spec(spec: ResolvedSpec) -> Iterator[str]:
    """Notes that cite a line, without the folders of this machine: plans travel in artifacts."""
    for note in spec.notes:
        at = f" ({PurePath(note.source.path).name}:{note.source.line})" if note.source else ""
        yield note.message.replace("`", "") + at
