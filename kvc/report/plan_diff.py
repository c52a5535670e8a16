"""The differences of two memory plans for people."""

from collections.abc import Sequence
from typing import Any

from kvc.plan.diff import Change, PlanDiff
from kvc.report.plan_table import layer_ranges
from kvc.report.table import cell, table


def plan_diff_table(diff: PlanDiff) -> str:
    """One row a field that differs, with the ratio of numbers; without a final newline."""
    if diff.equal:
        return f"memory: {diff.before} and {diff.after} are equal"
    return change_table("memory", (diff.before, diff.after), diff.changes)


def change_table(title: str, names: tuple[str, str], changes: Sequence[Change]) -> str:
    """One row a change; ``names`` of the two sides, replaced where they do not tell them apart."""
    return table((title, *(names if names[0] != names[1] else ("before", "after")), "ratio"), map(_row, changes))


def _row(change: Change) -> tuple[str, ...]:
    show = layer_ranges if change.path.endswith(".layers") else _text
    return change.path, show(change.before), show(change.after), _ratio(change)


def _text(value: Any) -> str:
    """A value in few characters; an element that only one plan has is just `present`."""
    if isinstance(value, dict):
        return "present"
    return ", ".join(map(cell, value)) if isinstance(value, list) else cell(value)


def _ratio(change: Change) -> str:
    numbers = (change.before, change.after)
    if not all(isinstance(number, int | float) for number in numbers) or not change.before:
        return ""
    return f"x{change.after / change.before:.3g}"
