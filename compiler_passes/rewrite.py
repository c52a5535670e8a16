"""Rewrite rules: a pattern, a check that says why not, and a replacement.

A pattern names arguments as the op's schema does and calls as the canonical text does. What a pattern cannot say (one
scale for both, nobody else reads it) is said by the check, so that a near miss has a reason and a place.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Union

import torch.fx

from kvc.compiler_passes.effects import argument, is_call, producer, remove_dead
from kvc.compiler_passes.infra import Miss, Rewritten, miss_at
from kvc.graphs.graph import Graph, op_name, qualified_name


@dataclass(frozen=True)
class Value:
    """Any value, bound to ``name``; the same name twice is the same value."""

    name: str


@dataclass(frozen=True)
class Call:
    """A call of an op (`kvc.rope`, or a glob: `kvc.quantize_*`), bound to ``name``.

    ``args`` maps schema arguments to patterns; ``result`` is which of the call's results the pattern stands for.
    """

    op: str
    name: str
    args: Mapping[str, Union["Call", Value]] = field(default_factory=dict)
    result: int = 0


Pattern = Call | Value
Bindings = dict[str, Any]


@dataclass(frozen=True)
class WhyNot:
    """Why a pattern or a check refuses: ``node`` is the nearest node; ``depth`` counts the pattern's calls that fit."""

    node: torch.fx.Node
    reason: str
    depth: int = 0


def match(pattern: Pattern, value: Any, bound: Bindings) -> WhyNot | None:
    """Match ``value`` against the pattern and fill ``bound``; None where it fits, else the nearest node and why not."""
    return _match(pattern, value, bound, value, "the value")


def _match(pattern: Pattern, value: Any, bound: Bindings, at: torch.fx.Node, place: str) -> WhyNot | None:
    """``place`` of node ``at`` is where ``value`` was found."""
    if isinstance(pattern, Value):
        return _bind(pattern.name, value, bound, at, place)
    call, result = producer(value) if isinstance(value, torch.fx.Node) else (value, 0)
    if not (is_call(call) and fnmatchcase(op_name(call.target), pattern.op) and result == pattern.result):
        return WhyNot(at, f"{place} is {describe(value)}, not {pattern.op}", len(bound))
    refused = _bind(pattern.name, call, bound, at, place)
    for name, inner in pattern.args.items():
        refused = refused or _match(inner, argument(call, name), bound, call, f"argument {name}")
    return refused


def _bind(name: str, value: Any, bound: Bindings, at: torch.fx.Node, place: str) -> WhyNot | None:
    if bound.setdefault(name, value) is value:
        return None
    return WhyNot(at, f"{place} is {describe(value)}, not the {name} found before", len(bound))


def describe(value: Any) -> str:
    """A value in a message: its placeholder or the op that makes it."""
    if not isinstance(value, torch.fx.Node):
        return str(value).lower()
    call, _ = producer(value)
    if call.op == "output":
        return "the output"
    return qualified_name(call) if call.op == "placeholder" else op_name(call.target)


class NearMiss(ABC):
    """A place that a user would expect to be rewritten and that cannot be: ``check`` says why not."""

    pattern: ClassVar[Call]

    @abstractmethod
    def check(self, graph: Graph, found: Bindings) -> WhyNot | None:
        """Why a matching place cannot be rewritten; may add to ``found`` what a replacement needs."""


class Rule(NearMiss):
    """One rewrite, done where the pattern matches and ``check`` has no objection."""

    @abstractmethod
    def replace(self, graph: Graph, found: Bindings) -> None:
        """Rewrite the place. Calls that become unused are erased afterwards."""


def apply_rules(graph: Graph, rules: Iterable[NearMiss]) -> Rewritten:
    """Apply rules to a copy until none fires; the misses are those that remain at the end."""
    work = graph.copy()
    fired, refused = apply_in_place(work, tuple(rules))
    misses = tuple(miss_at(work, why.node, why.reason) for why in refused)
    return Rewritten(work if fired else graph, fired, misses)


def apply_in_place(work: Graph, rules: tuple[NearMiss, ...]) -> tuple[int, list[WhyNot]]:
    """Rewrite ``work`` itself; how often a rule fired, and why those did not whose pattern still matches somewhere."""
    fired = 0
    while True:
        refused, changed = _sweep(work, rules)
        if not changed:
            return fired, refused
        fired += 1
        remove_dead(work)


def _sweep(work: Graph, rules: tuple[NearMiss, ...]) -> tuple[list[WhyNot], bool]:
    """Apply the first rule that fires; without one, the reasons of all places that matched a pattern."""
    refused = []
    for node in work.calls:
        for rule in rules:
            found: Bindings = {}
            if match(rule.pattern, node, found) is not None:
                continue
            why = rule.check(work, found)
            if why is not None:
                refused.append(why)
            elif isinstance(rule, Rule):
                rule.replace(work, found)
                return [], True
    return refused, False


def nearest_place(graph: Graph, rules: Iterable[NearMiss]) -> tuple[Miss, ...]:
    """The place of a graph where most of a pattern matches, if the op that a pattern starts with occurs at all."""
    tried = (match(rule.pattern, node, {}) for rule in rules for node in graph.calls)
    near = [why for why in tried if why is not None and why.depth]
    best = max(near, key=lambda why: why.depth, default=None)
    return (miss_at(graph, best.node, best.reason),) if best else ()
