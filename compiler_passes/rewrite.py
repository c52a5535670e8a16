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


def match(pattern: Pattern, value: Any, bound: Bindings, at: torch.fx.Node | None = None) -> WhyNot | None:
    """Match ``value`` against the pattern and fill ``bound``; None where it fits."""
    if isinstance(pattern, Value):
        return _bind(pattern.name, value, bound, at)
    call, result = producer(value) if isinstance(value, torch.fx.Node) else (value, 0)
    if not (is_call(call) and fnmatchcase(op_name(call.target), pattern.op) and result == pattern.result):
        return WhyNot(at or value, f"{describe(value)} is not {pattern.op}", len(bound))
    refused = _bind(pattern.name, call, bound, at)
    for name, inner in pattern.args.items():
        refused = refused or match(inner, argument(call, name), bound, call)
    return refused


def _bind(name: str, value: Any, bound: Bindings, at: torch.fx.Node | None) -> WhyNot | None:
    if bound.setdefault(name, value) is value:
        return None
    return WhyNot(at or value, f"{describe(value)} is not the {name} seen before", len(bound))


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
    """Apply rules until none fires; the misses are those that remain at the end."""
    work, rules, fired = graph.copy(), tuple(rules), 0
    while True:
        refused, changed = _sweep(work, rules)
        if not changed:
            break
        fired += 1
        remove_dead(work)
    misses = tuple(miss_at(work, why.node, why.reason) for why in refused)
    return Rewritten(work if fired else graph, fired, misses)


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


def nearest_places(graph: Graph, rules: Iterable[NearMiss]) -> tuple[Miss, ...]:
    """Where calls of the kind that a pattern starts with fail to match, the deepest matches only."""
    tried = (match(rule.pattern, node, {}) for rule in rules for node in graph.calls)
    near = [why for why in tried if why is not None and why.depth]
    deepest = max((why.depth for why in near), default=0)
    return tuple(miss_at(graph, why.node, why.reason) for why in near if why.depth == deepest)
