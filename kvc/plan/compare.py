"""Plans side by side: what differs for people who choose between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kvc.plan.capacity import bytes_for_tokens
from kvc.plan.types import Json, Plan

Number = int | Fraction | None


@dataclass(frozen=True)
class Comparison:
    """One figure of every plan, and its ratio to the first one's."""

    name: str
    values: tuple[Number, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Each value by the first; None where there is nothing to divide by."""
        first = self.values[0]
        return tuple(None if value is None or not first else float(value / first) for value in self.values)

    def to_json(self) -> Json:
        """Plain data."""
        exact = [value if value is None or value.denominator != 1 else int(value) for value in self.values]
        shown = [float(value) if isinstance(value, Fraction) else value for value in exact]
        return {"name": self.name, "values": shown, "ratios": list(self.ratios)}


_AT = (1024, 32_768, 131_072)  # lengths at which fixed bytes and slope are added up
_FIGURES: tuple[tuple[str, Callable[[Plan], Number]], ...] = (
    ("bytes per token (slope)", lambda plan: plan.bytes_per_token),
    ("bytes per sequence (fixed)", lambda plan: plan.bytes_per_sequence),
    ("smallest request", lambda plan: plan.smallest_request_bytes),
    *((f"one sequence of {length:,}", lambda plan, length=length: bytes_for_tokens(plan, length)) for length in _AT),
    ("lifecycles", lambda plan: len(plan.lifecycles)),
    ("pool groups", lambda plan: len(plan.pool_groups)),
    ("tokens that fit", lambda plan: plan.capacity.tokens if plan.capacity else None),
    ("sequences at max_seq_len", lambda plan: plan.capacity.sequences_at_max_len if plan.capacity else None),
)


def compare(plans: Sequence[Plan]) -> tuple[Comparison, ...]:
    """Every figure of every plan."""
    return tuple(Comparison(name, tuple(figure(plan) for plan in plans)) for name, figure in _FIGURES)
