"""Every number of a plan as the formula it comes from, with the spec line that set it."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvc.plan.buffers import BufferRun, buffer_runs
from kvc.plan.stale import ceil_div, held_pages
from kvc.plan.types import LayerGroup, Plan
from kvc.specs.resolved import Coverage, ResolvedSpec


@dataclass(frozen=True)
class Formula:
    """One number: ``of`` what, ``name``, how it is computed, its ``value`` and where the spec says so."""

    of: str
    name: str
    formula: str
    value: str
    source: str


def explain(spec: ResolvedSpec, plan: Plan) -> tuple[Formula, ...]:
    """The formulas of every layer group, then the totals."""
    runs = {(run.layers[0], run.role): run for run in buffer_runs(spec)}
    groups = [formula for group in plan.layer_groups for formula in _group(group, runs, plan, spec.target.max_seq_len)]
    return (*groups, *_totals(plan))


def _group(
    group: LayerGroup, runs: dict[tuple[int, str], BufferRun], plan: Plan, max_seq_len: int
) -> Iterator[Formula]:
    run = runs[group.layers[0], group.role]
    source = f"{group.source.path}:{group.source.line}"

    def row(name: str, formula: str, value: object) -> Formula:
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        return Formula(group.name, name, formula, shown, source)

    yield row("state bytes" if group.states else "row bytes", _row_formula(run), group.row_bytes)
    yield row("page bytes", _page_formula(group), group.page_bytes)
    if group.bytes_per_token:
        size = f"{group.page_bytes:,} x {len(group.layers)} layers / {group.tokens_per_page} tokens"
        yield row("bytes per token", size, group.bytes_per_token)
    else:
        coverage = run.coverage
        pages = held_pages(coverage, max_seq_len, group.tokens_per_page, plan.draft_tokens)
        what = _held_formula(coverage, group.tokens_per_page, plan.draft_tokens)
        yield row("pages held", f"{what}, at most those of {max_seq_len:,} tokens", pages)
        total = f"{group.page_bytes:,} x {len(group.layers)} layers x {pages} pages"
        yield row("bytes per sequence", total, group.bytes_per_sequence)
        if coverage.kind == "first_last":
            yield row("pages in a prefill step", *_prefill(coverage, group.tokens_per_page, plan.draft_tokens))


def _row_formula(run: BufferRun) -> str:
    if run.states:
        return " + ".join(f"{state.name} {list(state.shape)} {state.dtype}" for state in run.states)
    parts = (
        f"{plane.field} {plane.part} {plane.heads} x {plane.row_bytes}"
        if plane.heads > 1
        else f"{plane.field} {plane.part} {plane.row_bytes}"
        for plane in run.layout.planes
    )
    return " + ".join(parts)


def _page_formula(group: LayerGroup) -> str:
    size = f"{group.row_bytes:,} x {group.rows_per_page} rows"
    if group.rows_per_page not in (1, group.tokens_per_page):
        size += f" ({group.tokens_per_page} tokens)"
    return f"{size} + {group.rounding_bytes:,} rounding" if group.rounding_bytes else size


def _window_formula(coverage: Coverage, size: int, drafted: int) -> str:
    kept = f"ceil({coverage.keep_first}/{size}) + " if coverage.keep_first else ""
    return f"{kept}ceil(({coverage.window} - 1 + {drafted})/{size}) + 1"


def _held_formula(coverage: Coverage, size: int, drafted: int) -> str:
    formulas = {
        "recurrent": f"1 state + {drafted} that drafts may roll back",
        "rolling": "1 allocation",
        "chunk": f"chunk of {coverage.window} and {drafted} drafted, from its latest start in a page of {size}",
    }
    return formulas.get(coverage.kind) or _window_formula(coverage, size, drafted)


def _prefill(coverage: Coverage, size: int, drafted: int) -> tuple[str, int]:
    """Most twin pages while a prompt of any length is prefilled: the last ones before the step, and after it."""
    last = (coverage.window or 1) - 1
    formula = f"ceil({coverage.keep_first}/{size}) + 2 x (ceil(({last} + {drafted})/{size}) + 1)"
    return formula, ceil_div(coverage.keep_first, size) + 2 * (ceil_div(last + drafted, size) + 1)


def _totals(plan: Plan) -> Iterator[Formula]:
    slope = [group.name for group in plan.layer_groups if group.bytes_per_token]
    fixed = [group.name for group in plan.layer_groups if group.bytes_per_sequence]
    slots = (
        f"{plan.slots_of(cycle, 1)} x {plan.pool_groups[cycle.pool_group].slot_bytes:,}" for cycle in plan.lifecycles
    )
    yield Formula(
        "total", "bytes per token", " + ".join(slope) or "nothing grows", str(plan.bytes_per_token), "derived"
    )
    yield Formula(
        "total", "bytes per sequence", " + ".join(fixed) or "nothing", f"{plan.bytes_per_sequence:,}", "derived"
    )
    smallest = f"{plan.smallest_request_bytes:,}"
    yield Formula("total", "smallest request", " + ".join(slots) + " (slots of each lifecycle)", smallest, "derived")
