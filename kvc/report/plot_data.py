"""The numbers of ``kvc plan --plot``, apart from how they are drawn: what tests compare with the plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvc.plan.capacity import mix_of
from kvc.plan.shares import Share, sequence_curve, shares
from kvc.plan.types import Plan


@dataclass(frozen=True)
class Subject:
    """A plan, and the longest sequence of its spec's target."""

    plan: Plan
    max_seq_len: int


@dataclass(frozen=True)
class Stack:
    """One kind of bytes in every bar. ``fixed``: they stop growing with the sequence."""

    label: str
    fixed: bool
    nbytes: tuple[int, ...]


@dataclass(frozen=True)
class Curve:
    """Bytes of one sequence against its tokens, and how many of them are fixed once its windows are full."""

    name: str
    points: tuple[tuple[int, int], ...]
    fixed_bytes: int


# What the bytes of a layer group are called where its role says it; other groups grow and are told by their encoding.
_BY_ROLE = {
    "index_key": "index keys",
    "window": "windows",
    "twin": "twins",
    "state": "recurrent state",
    "compressor": "compressor state",
}
_BY_PART = {"scales": "block scales", "rounding": "rounding"}
_LAST = ("block scales", *_BY_ROLE.values(), "rounding")  # the order of a bar, after rows by encoding


def common_length(subjects: Sequence[Subject]) -> int:
    """The longest sequence that every target takes: the one that the bars are of."""
    return min(subject.max_seq_len for subject in subjects)


def stacks(subjects: Sequence[Subject]) -> tuple[Stack, ...]:
    """The bars, bottom first: every kind of bytes that one sequence of `common_length` has in any plan."""
    mix = mix_of(common_length(subjects))
    bars = [_by_label(shares(subject.plan, mix)) for subject in subjects]
    kinds = dict.fromkeys(kind for bar in bars for kind in bar)
    ordered = sorted(kinds, key=lambda kind: _LAST.index(kind[0]) if kind[0] in _LAST else -1)
    return tuple(Stack(*kind, tuple(bar.get(kind, 0) for bar in bars)) for kind in ordered)


def _by_label(found: Sequence[Share]) -> dict[tuple[str, bool], int]:
    bar: dict[tuple[str, bool], int] = {}
    for share in found:
        kind = _kind(share)
        bar[kind] = bar.get(kind, 0) + share.nbytes
    return bar


def _kind(share: Share) -> tuple[str, bool]:
    """(label, fixed) of some bytes; scales and rounding are told apart from rows, not by what they belong to."""
    if share.part != "rows":
        return _BY_PART[share.part], False
    fixed = not share.group.bytes_per_token
    role = "window" if fixed and share.group.role == "history" else share.group.role
    return _BY_ROLE.get(role, f"rows, {share.group.encoding}"), fixed


def curves(subjects: Sequence[Subject]) -> tuple[Curve, ...]:
    """A curve a plan, up to its own longest sequence."""
    return tuple(
        Curve(subject.plan.name, sequence_curve(subject.plan, subject.max_seq_len), subject.plan.bytes_per_sequence)
        for subject in subjects
    )
