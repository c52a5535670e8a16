"""Answers about plans for people: what fits, side by side, and where every number comes from."""

from collections.abc import Sequence
from fractions import Fraction

from kvc.plan.compare import Comparison, Number
from kvc.plan.explain import Formula
from kvc.plan.fit import Fit
from kvc.plan.optimise import Choice, Costs
from kvc.plan.types import Plan
from kvc.plan.units import format_size
from kvc.report.table import table


def fit_table(fit: Fit) -> str:
    """A sentence, and the slots of every pool group."""
    rows = (
        (
            f"{use.pool_group}",
            use.slots,
            use.slot_bytes,
            use.slots * use.slot_bytes,
            use.num_slots,
            _percent(use.percent),
        )
        for use in fit.groups
    )
    header = ("pool group", "slots held", "slot bytes", "bytes", "slots in all", "of the pool")
    return f"{_sentence(fit)}\n\n{table(header, rows)}"


def _sentence(fit: Fit) -> str:
    of = f"{fit.sequences:,} sequence" + ("s" if fit.sequences != 1 else "")
    taken = f"{fit.question}: {fit.tokens:,} tokens in {of} take {fit.nbytes:,} bytes ({format_size(fit.nbytes)})"
    if fit.cache_bytes is None:
        return f"{taken}; give `--device` to see whether they fit"
    share = f"{100 * fit.nbytes / fit.cache_bytes:.3g} %" if fit.cache_bytes else "all"
    verdict = "fits" if fit.fits else "does not fit"
    return f"{taken}: {verdict}, {share} of the cache's {format_size(fit.cache_bytes)}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} %"


def compare_table(plans: Sequence[Plan], rows: Sequence[Comparison]) -> str:
    """One column a plan; ratios to the first beside the others."""
    header = ["", plans[0].name]
    for plan in plans[1:]:
        header += [plan.name, "ratio"]
    return table(header, [_compared(row) for row in rows])


def _compared(row: Comparison) -> list[object]:
    cells: list[object] = [row.name, _number(row.values[0])]
    for value, ratio in zip(row.values[1:], row.ratios[1:], strict=True):
        cells += [_number(value), "" if ratio is None else f"x{ratio:.3g}"]
    return cells


def _number(value: Number) -> object:
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else f"{float(value):,.2f}"
    return value


def explain_table(formulas: Sequence[Formula]) -> str:
    """One line a number, grouped by what it is of."""
    rows = [(row.of, row.name, row.value, f"= {row.formula}", row.source) for row in formulas]
    return table(("of", "number", "value", "formula", "spec"), rows)


def optimise_table(choices: Sequence[Choice], costs: Costs, shown: int = 8) -> str:
    """The best choices with their costs, why the first is best, and what to write."""
    rows = [
        (
            ", ".join(map(str, choice.pages)) + (" padded" if choice.padded else ""),
            choice.groups,
            choice.wasted_bytes,
            choice.smallest_bytes,
            choice.table_bytes,
            round(choice.cost),
        )
        for choice in choices[:shown]
    ]
    header = ("tokens per page", "pool groups", "wasted bytes", "smallest request", "table bytes", "cost")
    return f"{costs}\n\n{table(header, rows)}\n\n{choices[0].reason(choices)}"
