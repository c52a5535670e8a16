"""Questions about a plan: what a mix of sequences takes, or what a device holds.

`tokens=1M`, `sequences=64@32k` and `device=139GiB`. Counts are decimal (k = 1,000), with `Ki` and `Mi` for powers of
two, as sizes in bytes are (GB, GiB).
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction

from kvc.diagnostics import fail
from kvc.plan.capacity import mix_of, slots_for_lengths, tokens_for_bytes
from kvc.plan.memory import cache_bytes
from kvc.plan.types import Json, Plan
from kvc.specs.resolved import Memory
from kvc.specs.sizes import BadValue, parse_size

_COUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(k|M|G|Ki|Mi|Gi)?")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_HELP = "write tokens=1M, sequences=64@32k or device=139GiB (k = 1,000; Ki = 1,024)"


@dataclass(frozen=True)
class Question:
    """``mix``: sequence length -> number of sequences; or, with ``device_bytes``, what fits there."""

    text: str
    mix: dict[int, int]
    device_bytes: int | None = None


@dataclass(frozen=True)
class GroupUse:
    """Slots of one pool group that the mix holds, and of how many where the memory is known."""

    pool_group: int
    slots: int
    slot_bytes: int
    num_slots: int | None

    @property
    def percent(self) -> float | None:
        """Share of the pool group."""
        return 100 * self.slots / self.num_slots if self.num_slots else None


@dataclass(frozen=True)
class Fit:
    """The answer: ``nbytes`` in whole slots for ``tokens`` in ``sequences``, of ``cache_bytes`` where known.

    ``fits`` is None where no memory size is known.
    """

    question: str
    tokens: int
    sequences: int
    nbytes: int
    cache_bytes: int | None
    fits: bool | None
    groups: tuple[GroupUse, ...]

    def to_json(self) -> Json:
        """Plain data; each group with its `percent`."""
        groups = [asdict(group) | {"percent": group.percent} for group in self.groups]
        return asdict(self) | {"groups": groups}


def parse_count(text: str) -> int:
    """Tokens or sequences of `32k`, `1M`, `32Ki` or `4096`. Raises KVC207."""
    found = _COUNT.fullmatch(text.strip())
    number = Fraction(found[1]) * _FACTORS[found[2] or ""] if found else Fraction(-1)
    if number.denominator != 1 or number < 1:
        raise fail("KVC207", f"`{text[:60]}` is not a whole number of tokens or sequences", help=_HELP)
    return int(number)


def _tokens(value: str, max_seq_len: int) -> Question:
    return Question(f"tokens={value}", mix_of(parse_count(value), max_seq_len))


def _sequences(value: str, max_seq_len: int) -> Question:
    count, at, length = value.partition("@")
    return Question(f"sequences={value}", {parse_count(length) if at else max_seq_len: parse_count(count)})


def _device(value: str, _max_seq_len: int) -> Question:
    try:
        return Question(f"device={value}", {}, parse_size(value))
    except BadValue as error:
        raise fail("KVC204", f"--fit: {error}", help=error.help) from error


_KINDS: dict[str, Callable[[str, int], Question]] = {"tokens": _tokens, "sequences": _sequences, "device": _device}


def parse_question(text: str, max_seq_len: int) -> Question:
    """What ``--fit`` asks. Raises KVC207 for anything else, KVC204 for a size that cannot be read."""
    kind, _, value = text.partition("=")
    if kind not in _KINDS:
        raise fail("KVC207", f"`{text[:60]}` is not a question", help=_HELP)
    return _KINDS[kind](value, max_seq_len)


def answer(plan: Plan, question: Question, max_seq_len: int) -> Fit:
    """What the question's mix takes; for a device, the mix of the longest sequences that fills it."""
    mix, room = question.mix, plan.capacity.cache_bytes if plan.capacity else None
    if question.device_bytes is not None:
        room = room if room is not None else cache_bytes(Memory(question.device_bytes, 1.0, 0))
        mix = mix_of(tokens_for_bytes(plan, room, max_seq_len) or 0, max_seq_len)
    slots = slots_for_lengths(plan, mix)
    groups = tuple(GroupUse(group.id, slots[group.id], group.slot_bytes, group.num_slots) for group in plan.pool_groups)
    nbytes = sum(use.slots * use.slot_bytes for use in groups)
    return Fit(
        question=question.text,
        tokens=sum(length * count for length, count in mix.items()),
        sequences=sum(mix.values()),
        nbytes=nbytes,
        cache_bytes=room,
        fits=None if room is None else nbytes <= room,
        groups=groups,
    )
