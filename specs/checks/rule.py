"""What a rule is, and what it reports."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvc.specs.models import Spec
from kvc.specs.nodes import Loc


@dataclass(frozen=True)
class Hit:
    """A rule broken at ``loc``; ``help`` names the nearest supported choice."""

    loc: Loc
    message: str
    help: str


@dataclass(frozen=True)
class Rule:
    """``find`` yields a hit for every place of a spec that breaks the rule ``title``; it expands no `repeat`."""

    code: str
    title: str
    find: Callable[[Spec], Iterator[Hit]]
