"""Runs the rules on the graphs that inductor compiles, and keeps what they did."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch.fx

import kvc
from kvc import compat
from kvc.compiler_passes.fold_gather_into_attention import FoldGatherIntoAttention
from kvc.compiler_passes.fold_overlay import FoldOverlay
from kvc.compiler_passes.fuse_append import FuseAppend
from kvc.compiler_passes.fuse_expand_quantize import FuseExpandQuantize
from kvc.compiler_passes.fuse_rope_quantize import FuseRopeQuantize
from kvc.compiler_passes.infra import Miss
from kvc.compiler_passes.rewrite import NearMiss, WhyNot, apply_in_place
from kvc.graphs.graph import Graph
from kvc.graphs.symbols import Symbols
from kvc.integrations.inductor.in_place import source_line, to_functional, to_in_place

# Pass -> its rules, in the order of the compiler's own pipeline.
RULES: Mapping[str, tuple[NearMiss, ...]] = {
    one.name: one.rules
    for one in (FuseRopeQuantize, FuseAppend, FoldOverlay, FoldGatherIntoAttention, FuseExpandQuantize)
}

HOOK = "post_grad_custom_pre_pass"
_SOURCES = ("compiler_passes", "graphs", "integrations/inductor", "ops")  # what decides how a graph is rewritten
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RewrittenGraph:
    """What the rules did to one graph: rewrites by pass, and the places that stayed, each with the reason."""

    name: str
    fired: Mapping[str, int]
    misses: tuple[Miss, ...]

    def __str__(self) -> str:
        done = ", ".join(f"{name} fired {count}" for name, count in self.fired.items())
        return "\n".join([f"{self.name}: {done}", *(f"  missed in {miss}" for miss in self.misses)])


@dataclass
class Rewrites:
    """kvc's rewrites as a pass of inductor, and a report of what they did: ``graphs``, in the order of compilation.

    A graph that inductor finds in its cache was rewritten when it was compiled first; nothing is reported then. What
    fired is logged as INFO of logger `kvc.integrations.inductor.rewrites`, what did not as WARNING.
    """

    graphs: list[RewrittenGraph] = field(default_factory=list)

    def options(self) -> dict[str, Any]:
        """For one function: ``torch.compile(f, options=rewrites.options())``."""
        return {HOOK: compat.inductor_pass(self.rewrite, rules_digest)}

    @contextmanager
    def installed(self) -> Iterator["Rewrites"]:
        """For everything that is compiled meanwhile; passes that are installed already run first."""
        with compat.inductor_config().patch({HOOK: self._after(getattr(compat.inductor_config(), HOOK))}):
            yield self

    def _after(self, installed: Any) -> Any:
        """Inductor's setting with this pass behind the installed ones. torch 2.11 takes one pass only, so they are
        made one."""
        first = list(installed) if isinstance(installed, list | tuple) else [installed] if installed else []
        if not first:
            return self.options()[HOOK]

        def run(graph: torch.fx.Graph) -> None:
            for one in first:
                one(graph)
            self.rewrite(graph)

        return compat.inductor_pass(run, lambda: _joint_digest(first))

    def rewrite(self, fx: torch.fx.Graph) -> None:
        """Rewrite a graph that inductor is about to compile, in place."""
        kept = to_in_place(fx)
        graph = Graph(f"inductor graph {len(self.graphs)}", fx, Symbols())
        fired, misses = {}, [_miss(graph, why) for why in kept]
        for name, rules in RULES.items():
            fired[name], refused = apply_in_place(graph, rules)
            misses += [_miss(graph, why) for why in refused]
        to_functional(fx)
        fx.lint()
        self._report(RewrittenGraph(graph.name, fired, tuple(misses)))

    def _report(self, done: RewrittenGraph) -> None:
        self.graphs.append(done)
        _log.log(logging.WARNING if done.misses else logging.INFO, "%s", done)

    @property
    def fired(self) -> dict[str, int]:
        """Rewrites by pass over all graphs."""
        return dict(sum((Counter(graph.fired) for graph in self.graphs), Counter()))

    @property
    def misses(self) -> tuple[Miss, ...]:
        """Why something stayed as it was, over all graphs."""
        return tuple(miss for graph in self.graphs for miss in graph.misses)

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "nothing was compiled, or all of it came from inductor's cache"


def _miss(graph: Graph, why: WhyNot) -> Miss:
    """A miss at a node of inductor's graph, citing the user's line."""
    source = why.node.meta.get("source") or source_line(why.node)
    line = why.node.format_node() or why.node.name
    return Miss(graph.name, f"{line}  # {source}" if source else line, why.reason)


@cache
def rules_digest() -> str:
    """Changes with kvc's version and with every source file that decides how a graph is rewritten."""
    root = Path(__file__).parents[2]
    files = sorted(path for name in _SOURCES for path in (root / name).rglob("*.py"))
    digest = hashlib.sha256(kvc.__version__.encode())
    for path in files:
        digest.update(path.read_bytes())
    return f"kvc {digest.hexdigest()}"


def _joint_digest(first: list[Any]) -> Any:
    """That of all passes; None, which turns inductor's cache off, where one of them has none."""
    digests = [one.uuid() if hasattr(one, "uuid") else None for one in first]
    return None if None in digests else (*digests, rules_digest())
