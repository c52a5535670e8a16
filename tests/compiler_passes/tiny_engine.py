"""Runs a program by interpreting its FX graphs, with pools that start as 0xFF: what passes must not change."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.fx

from kvc.compiler_passes.manager import run_passes
from kvc.graphs.graph import Graph, qualified_name
from kvc.graphs.lowering.lower import lower
from kvc.graphs.program import Phase, Program
from kvc.plan import make_plan
from kvc.plan.types import Plan
from kvc.runtime.constants import make_constants
from kvc.runtime.random_weights import random_weights
from kvc.runtime.weights import Checkpoint
from kvc.specs import load_spec
from kvc.specs.resolved import ResolvedSpec, Rope

SLOTS = 12
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def with_rope(spec: ResolvedSpec, rope: Rope | None) -> ResolvedSpec:
    return replace(spec, runs=tuple(replace(run, shape=replace(run.shape, rope=rope)) for run in spec.runs))


def lowered(name: str, *ropes: Rope | None) -> tuple[Program, Plan]:
    """A library spec, with another rotary embedding if one is given."""
    spec = load_spec(name)
    for rope in ropes:
        spec = with_rope(spec, rope)
    return lowered_spec(spec)


def lowered_spec(spec: ResolvedSpec) -> tuple[Program, Plan]:
    plan = make_plan(spec)
    return lower(spec, plan), plan


def checkpoint_of(program: Program) -> Checkpoint:
    """Random weights for what the program is bound to."""
    return Checkpoint(random_weights(program.constants, program.dtype), DTYPES[program.dtype])


@cache
def compiled() -> Program:
    """`tiny-mixed` after all passes; it must not be changed."""
    program, _ = lowered("tiny-mixed")
    return run_passes(program)[0]


def interpret(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Call the nodes one by one; ``inputs`` by qualified name."""
    values = {node: inputs[qualified_name(node)] for node in graph.placeholders}
    for node in graph.fx.nodes:
        if node.op == "call_function":
            args = torch.fx.node.map_arg(node.args, values.__getitem__)
            values[node] = node.target(*args, **node.kwargs)
    return {name: values[node] for name, node in graph.outputs.items()}


@dataclass(frozen=True)
class Batch:
    """Committed lengths and own tokens of each sequence, and padding tokens after them."""

    phase: Phase
    committed: tuple[int, ...]
    tokens: tuple[int, ...]
    padding: int = 0

    def sections(self, width: int, tokens_per_page: int, lifecycles: int) -> dict[str, torch.Tensor]:
        """The step buffer; sequence ``b`` owns four slots, used from the last one down, and -1 beyond what it needs.

        So in every lifecycle, but that later ones, which twins have, let go of its second page.
        """
        starts = [sum(self.tokens[:b]) for b in range(len(self.tokens) + 1)]
        owners = [b for b, count in enumerate(self.tokens) for _ in range(count)] + [-1] * self.padding
        tables = torch.full((lifecycles, len(self.tokens), width), -1)
        for b, (length, count) in enumerate(zip(self.committed, self.tokens, strict=True)):
            pages = -(-(length + count) // tokens_per_page)
            tables[:, b, :pages] = torch.arange(4 * b + 3, 4 * b + 3 - pages, -1)
        tables[1:, :, 1] = -1
        made = {"slot_tables": tables, "committed": self.committed, "query_starts": starts, "sequence_ids": owners}
        return {f"step.{name}": torch.as_tensor(value, dtype=torch.int32) for name, value in made.items()}


# Chunked prefill of sequences of different lengths, then generation of two tokens each, an empty sequence as padding.
SCHEDULE = (
    Batch("context", (0, 0, 0), (17, 1, 30), padding=5),
    Batch("context", (17, 1, 30), (9, 0, 3)),
    Batch("generation", (26, 1, 33), (1, 1, 1)),
    Batch("generation", (27, 2, 34), (2, 2, 2)),
)


class TinyEngine:
    """Every layer of a program on its own pool memory."""

    def __init__(self, program: Program, plan: Plan) -> None:
        self.program, self.plan = program, plan
        self.constants = make_constants(program.constants, "cpu", checkpoint_of(program))
        self.pools = [
            torch.full((SLOTS * pool.pages_per_slot, pool.page_bytes), 0xFF, dtype=torch.uint8) for pool in plan.pools
        ]

    def run(self, schedule: tuple[Batch, ...] = SCHEDULE) -> list[torch.Tensor]:
        """Outputs of every layer and step, then the bytes of every pool."""
        generator = torch.Generator().manual_seed(7)
        outputs = [out for batch in schedule for out in self.step(batch, generator)]
        return outputs + self.pools

    def step(self, batch: Batch, generator: torch.Generator) -> list[torch.Tensor]:
        sections = batch.sections(
            self.program.table_width, self.plan.lifecycles[0].tokens_per_page, len(self.plan.lifecycles)
        )
        prologue = self.program.prologues.get(batch.phase)
        derived = interpret(prologue, sections) if prologue else {}
        values = sections | {f"prologue.{name}": value for name, value in derived.items()}
        return [self.layer(binding, batch, values, generator) for binding in self.program.bindings]

    def layer(self, binding, batch, values, generator) -> torch.Tensor:
        graph = self.program.graphs[binding.signature, batch.phase]
        inputs = {f"pool.{role}": self.pools[pool][index:] for role, (pool, index) in binding.pools.items()}
        inputs |= {name: self.constants[constant] for name, constant in binding.constants.items()}
        tokens = sum(batch.tokens) + batch.padding
        for node in graph.placeholders:
            if node.meta["role"] == "input":
                shape = (tokens, *node.meta["val"].shape[1:])
                random = torch.randn(shape, generator=generator) * 2
                inputs[qualified_name(node)] = random.to(node.meta["val"].dtype)
        return interpret(graph, inputs | values)["out"]
