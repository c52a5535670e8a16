"""Bytes to tokens and tokens to bytes, in whole slots, for any mix of sequences.

A number of tokens is held as sequences of at most ``max_len`` tokens: as many whole ones as it fills and one with the
rest (``max_len`` None: one sequence). Both directions count slots with `Plan.slots_of`, so they agree exactly:
``bytes_for_tokens(tokens_for_bytes(b)) <= b < bytes_for_tokens(tokens_for_bytes(b) + 1)``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kvc.plan.stale import page_limit
from kvc.plan.types import Plan
from kvc.specs.resolved import Coverage

Slots = dict[int, int]


def slots_for_lengths(plan: Plan, lengths: Iterable[int] | Mapping[int, int]) -> Slots:
    """Slots of each pool group that sequences of these lengths hold; a mapping counts the sequences of a length."""
    slots: Counter[int] = Counter({group.id: 0 for group in plan.pool_groups})
    for length, sequences in Counter(lengths).items():
        for lifecycle in plan.lifecycles:
            slots[lifecycle.pool_group] += sequences * plan.slots_of(lifecycle, length)
    return dict(slots)


def bytes_for_lengths(plan: Plan, lengths: Iterable[int] | Mapping[int, int]) -> int:
    """Bytes of those slots."""
    slots = slots_for_lengths(plan, lengths)
    return sum(slots[group.id] * group.slot_bytes for group in plan.pool_groups)


def mix_of(tokens: int, max_len: int | None = None) -> dict[int, int]:
    """The lengths as which ``tokens`` are held: length -> number of sequences."""
    if max_len is None:
        return {tokens: 1}
    whole, rest = divmod(tokens, max_len)
    return {max_len: whole, rest: 1} if rest else {max_len: whole}


def bytes_for_tokens(plan: Plan, tokens: int, max_len: int | None = None) -> int:
    """Bytes that ``tokens`` take, in whole slots."""
    return bytes_for_lengths(plan, mix_of(tokens, max_len))


def tokens_for_bytes(plan: Plan, nbytes: int, max_len: int | None = None) -> int | None:
    """Most tokens that ``nbytes`` hold; None where one sequence of any length fits (no layer grows without bound)."""
    if max_len is None:
        return _longest(plan, nbytes)
    whole, rest = divmod(nbytes, bytes_for_tokens(plan, max_len))
    return whole * max_len + _search(max_len - 1, lambda tokens: bytes_for_tokens(plan, tokens) <= rest)


def tokens_for_slots(plan: Plan, slots: Slots, max_len: int) -> int:
    """Most tokens that ``slots`` of each pool group hold, as sequences of ``max_len`` and one with the rest."""
    one = slots_for_lengths(plan, [max_len])
    whole = min(slots[group] // needed for group, needed in one.items() if needed)
    left = {group: slots[group] - whole * needed for group, needed in one.items()}

    def fits(tokens: int) -> bool:
        return all(needed <= left[group] for group, needed in slots_for_lengths(plan, [tokens]).items())

    return whole * max_len + _search(max_len - 1, fits)


def _longest(plan: Plan, nbytes: int) -> int | None:
    def fits(tokens: int) -> bool:
        return bytes_for_tokens(plan, tokens) <= nbytes

    growing = [lifecycle for lifecycle in plan.lifecycles if lifecycle.bytes_per_token]
    if growing:
        return _search(min(int(nbytes / lifecycle.bytes_per_token) for lifecycle in growing), fits)
    flat = _flat_from(plan)
    longest = _search(flat, fits)
    return None if longest == flat else longest


def _flat_from(plan: Plan) -> int:
    """A length from which on a sequence without growing layers takes no more pages."""
    return max(_flat_length(cycle.coverage, cycle.tokens_per_page, plan.draft_tokens) for cycle in plan.lifecycles)


def _flat_length(coverage: Coverage, tokens_per_page: int, draft_tokens: int) -> int:
    """Pages at their limit; chunks reach it once they have started at every place in a page."""
    limit = page_limit(coverage, tokens_per_page, draft_tokens) or 0
    starts = tokens_per_page if coverage.kind == "chunk" else 1
    return max(limit * tokens_per_page, starts * (coverage.window or 0))


def _search(most: int, fits: Callable[[int], bool]) -> int:
    """The longest sequence of at most ``most`` tokens that fits; what it takes never falls with its length."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
