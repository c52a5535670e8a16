"""A memory plan for people: what a token and a sequence cost, where it goes, what fits. At most 80 columns wide."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from textwrap import fill

from kvc.plan.types import Capacity, LayerGroup, Overheads, Plan
from kvc.plan.units import format_size
from kvc.report.memory_bar import BLOCKS, BarStyle, memory_bar
from kvc.report.table import table

WIDTH = 80
_LAYERS_WIDTH = 16


def plan_table(plan: Plan, style: BarStyle = BLOCKS) -> str:
    """The whole report, without a final newline; ``style`` is that of its memory bar."""
    blocks = [_title(plan), _totals(plan), _layers(plan), _states(plan), _lifecycles(plan), _pools(plan)]
    blocks += [_overheads(plan.overheads), _capacity(plan.capacity), memory_bar(plan, style)]
    return "\n\n".join(filter(None, [*blocks, _notes(plan.notes)]))


def layer_ranges(layers: Sequence[int], width: int = _LAYERS_WIDTH) -> str:
    """Ascending layer indices as in a spec's overrides, `0-2,30`; cut at ``width`` characters, with their number."""
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(layers))
    if len(text) <= width:
        return text
    count = f"..({len(layers)})"
    whole = text[: width - len(count) + 1].rpartition(",")[0] or text.partition(",")[0]
    return whole + count


def _runs(layers: Sequence[int]) -> Iterable[tuple[int, int]]:
    """(first, last) of each stretch of consecutive indices."""
    starts = [at for at, layer in enumerate(layers) if at == 0 or layers[at - 1] != layer - 1]
    return ((layers[start], layers[stop - 1]) for start, stop in zip(starts, [*starts[1:], len(layers)], strict=True))


def _exact(value: Fraction) -> int | str:
    """Bytes a token: whole where they are, else as an exact fraction."""
    return value.numerator if value.denominator == 1 else str(value)


def _spec_lines(groups: Iterable[LayerGroup]) -> str:
    lines = sorted({group.source.line for group in groups})
    return ", ".join(map(str, lines[:3])) + (", .." if len(lines) > 3 else "")


def _title(plan: Plan) -> str:
    files = ", ".join(dict.fromkeys(group.source.path for group in plan.layer_groups))
    layers = len({buffer.layer for buffer in plan.buffers})
    return f"{plan.name}: {layers:,} layers, spec {files}, digest {plan.digest[:12]}"


def _totals(plan: Plan) -> str:
    rows = (
        ("bytes per token", _exact(plan.bytes_per_token), "slope: grows with every token"),
        ("bytes per sequence", plan.bytes_per_sequence, "fixed: windows, states, twins at their longest"),
        ("smallest request", plan.smallest_request_bytes, "bytes; derived: slots of one token"),
    )
    return table(("total", "bytes", "meaning"), rows)


def _layers(plan: Plan) -> str:
    rows = (
        (
            group.name,
            layer_ranges(group.layers),
            group.encoding,
            group.tokens_per_page,
            group.page_bytes,
            _exact(group.bytes_per_token),
            group.bytes_per_sequence,
            _spec_lines([group]),
        )
        for group in plan.layer_groups
    )
    header = ("group", "layers", "encoding", "S", "page bytes", "B/token", "B/sequence", "spec line")
    return table(header, rows) + "\nS: tokens per page; page bytes of one layer; B/token, B/sequence of the group"


def _states(plan: Plan) -> str:
    """The tensors that a sequence keeps whole, where there are any."""
    rows = [
        (group.name, state.name, f"[{', '.join(map(str, state.shape))}]", state.dtype, state.nbytes)
        for group in plan.layer_groups
        for state in group.states
    ]
    return table(("group", "state", "shape", "dtype", "bytes a layer"), rows) if rows else ""


def _overheads(beside: Overheads) -> str:
    rows = (
        ("scale operands", beside.scale_bytes, "equal scales are stored once"),
        ("RoPE tables", beside.rope_bytes, "cos and sin up to max_seq_len"),
        ("page tables", beside.table_bytes, "slots and pages of a full step"),
        ("null page", beside.null_page_bytes, "not needed: padding touches no page"),
        ("scratch", beside.scratch_bytes, "of layers; -: known once they are compiled"),
    )
    return table(("beside the pools", "bytes", "meaning"), rows)


def _lifecycles(plan: Plan) -> str:
    rows = (
        (
            lifecycle.id,
            lifecycle.domain,
            str(lifecycle.coverage),
            lifecycle.pool_group,
            _exact(lifecycle.bytes_per_token),
            lifecycle.bytes_per_sequence,
            _spec_lines(group for group in plan.layer_groups if group.lifecycle == lifecycle.id),
        )
        for lifecycle in plan.lifecycles
    )
    header = ("lifecycle", "domain", "keeps", "pool group", "B/token", "B/sequence", "spec line")
    return table(header, rows)


def _pools(plan: Plan) -> str:
    rows = (
        (
            pool.id,
            pool.lifecycle,
            pool.pool_group,
            f"{pool.pages_per_slot:,} x {pool.page_bytes:,}",
            pool.slot_bytes,
            plan.pool_groups[pool.pool_group].num_slots,
            _spec_lines(group for group in plan.layer_groups if group.pool == pool.id),
        )
        for pool in plan.pools
    )
    header = ("pool", "lifecycle", "pool group", "pages in a slot", "slot bytes", "slots", "spec line")
    return table(header, rows)


def _capacity(capacity: Capacity | None) -> str:
    if capacity is None:
        return ""
    taken = f"({capacity.free_fraction} of {format_size(capacity.memory_bytes - capacity.reserve_bytes)})"
    rows = (
        ("device", capacity.memory_bytes, format_size(capacity.memory_bytes)),
        ("reserve", capacity.reserve_bytes, format_size(capacity.reserve_bytes)),
        ("cache", capacity.cache_bytes, f"{format_size(capacity.cache_bytes)} {taken}"),
        ("whole slots", capacity.used_bytes, format_size(capacity.used_bytes)),
        ("tokens", capacity.tokens, "in whole pages (derived)"),
        ("sequences", capacity.sequences_at_max_len, f"of {capacity.max_seq_len:,} tokens each (derived)"),
    )
    return table(("capacity", "amount", "meaning"), rows)


def _notes(notes: Iterable[str]) -> str:
    return "\n".join(fill(f"note: {note}", WIDTH, subsequent_indent="      ") for note in notes)
