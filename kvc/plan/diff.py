"""What differs between two memory plans, field by field."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kvc.plan.types import Json, Plan

# What says where a plan came from, or repeats the pools, rather than what a cache costs.
_LEFT_OUT = frozenset({"name", "digest", "buffers", "notes", "source"})
_KEYS = ("name", "id")  # what the elements of a plan's lists are matched by, the first that they have


@dataclass(frozen=True)
class Change:
    """One field that differs, by its place in the plan's JSON (`layer_groups.gqa0.page_bytes`).

    A whole element that only one plan has is one change; the other side is None.
    """

    path: str
    before: Any
    after: Any

    def to_json(self) -> Json:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class PlanDiff:
    """All changes from ``before`` to ``after`` (names of the plans), in the order of a plan's JSON."""

    before: str
    after: str
    changes: tuple[Change, ...]

    @property
    def equal(self) -> bool:
        """Whether both plans place every byte alike."""
        return not self.changes

    def to_json(self) -> Json:
        """Plain data: `before`, `after`, `equal` and the list of changes."""
        names = {"before": self.before, "after": self.after, "equal": self.equal}
        return names | {"changes": [change.to_json() for change in self.changes]}


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """Compare totals, layer groups (by name), lifecycles, pools, pool groups (by id) and capacity."""
    changes = diff_json(_by_key(before.to_json()), _by_key(after.to_json()))
    return PlanDiff(before.name, after.name, tuple(changes))


def _by_key(value: Any) -> Any:
    """JSON with every list of objects as a mapping by their key, and without the fields that are left out."""
    if isinstance(value, dict):
        return {name: _by_key(part) for name, part in value.items() if name not in _LEFT_OUT}
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return value
    key = next(key for key in _KEYS if key in value[0])
    return {str(part[key]): _by_key(part) for part in value}


def diff_json(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Every place where two values of JSON data differ; objects are compared key by key."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            yield from diff_json(before.get(name), after.get(name), f"{path}.{name}".lstrip("."))
    elif before != after:
        yield Change(path, before, after)
