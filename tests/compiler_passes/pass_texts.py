"""Before and after texts: a pass is tested on what it reads and what it prints."""

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest
import torch.fx

from kvc.compiler_passes.infra import ProgramPass, Result
from kvc.diagnostics import Diagnostic, KvcError
from kvc.graphs.graph import Graph, is_op
from kvc.graphs.program import Program
from kvc.graphs.text import parse_graph, print_graph

# Placeholders of a layer whose step values are hoisted: 4 query heads, 2 KV heads of 8 values, fp8, 4 tokens a page.
LAYER = """
  %0: bf16[T, 4, 8] = input.q
  %1: bf16[T, 2, 8] = input.k
  %2: bf16[T, 2, 8] = input.v
  %3: u8[P, 128] = pool.history
  %4: f32[2] = scale.k
  %5: f32[2] = scale.v
  %6: f32[M, 8] = table.rope
  %7: i32[T] = prologue.positions
  %8: i32[B] = prologue.lengths
  %9: i32[B, W] = prologue.page_table_0
  %10: i32[T] = prologue.rows_0
"""
DECODE = "{encoding=fp8, kv_heads=2, softmax_scale=0.5, tokens_per_page=4, v_head_dim=8}"


def graph_text(body: str, placeholders: str = LAYER, name: str = "gqa0.generation") -> str:
    lines = [line for line in placeholders.splitlines() + dedent(body).splitlines() if line.strip()]
    return "\n".join([f"graph {name}", *(f"  {line.strip()}" for line in lines)]) + "\n"


# A layer that every rule is content with.
GOOD = graph_text(f"""
    %11: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {{layout=half}}
    %12: bf16[T, 2, 8] = kvc.rope(%1, %6, %7) {{layout=half}}
    %13: u8[T, 2, 8] = kvc.quantize_fp8(%12, %4)
    %14: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
    kvc.store_rows(%3, [%13, %14], %10) {{tokens_per_page=4}}  # a.yaml:8
    %15: bf16[T, 4, 8], %16: f32[T, 4] = kvc.gqa_decode(%11, %3, %9, %8, %4, %5) {DECODE}  # a.yaml:8
    return out=%15
""")


def node_of(graph: Graph, op: str) -> torch.fx.Node:
    return next(node for node in graph.calls if is_op(node, op))


def found(call: Callable[..., None], *args: Any, **kwargs: Any) -> list[Diagnostic]:
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    return list(caught.value.diagnostics)


def program_of(*texts: str, device: str = "cpu", arch: str | None = None) -> Program:
    """A program of layer graphs without bindings; the header of each text says its signature and phase."""
    graphs = {tuple(graph.name.split(".")): graph for graph in map(parse_graph, texts)}
    return Program(
        name="text",
        dtype="bf16",
        device=device,
        arch=arch,
        graphs=graphs,
        prologues={},
        bindings=(),
        constants={},
        signatures={},
        step={},
        table_width=4,
        buckets=(1, 2),
    )


def first_difference(expected: str, actual: str) -> str:
    """Both texts up to the first line that differs, which is marked."""
    pairs = list(zip([*expected.splitlines(), ""], [*actual.splitlines(), ""], strict=False))
    at = next(i for i, (want, got) in enumerate(pairs) if want != got)
    same = "\n".join(f"    {want}" for want, _ in pairs[:at])
    return f"\n{same}\n>>> expected: {pairs[at][0]}\n>>> got:      {pairs[at][1]}"


def check_rewrite(one: ProgramPass, before: str, after: str, fired: int) -> Result:
    """Run the pass on ``before``; the text must be ``after``, and the given program must be left as it was."""
    program = program_of(before)
    result = one.run(program)
    (graph,), (given,) = result.program.graphs.values(), program.graphs.values()
    assert print_graph(given) == before
    actual = print_graph(graph)
    assert actual == after, first_difference(after, actual)
    assert result.fired == fired
    return result


def check_miss(one: ProgramPass, text: str, reason: str, at: str) -> None:
    """The pass changes nothing and says why, at a line that holds ``at``."""
    result = check_rewrite(one, text, text, fired=0)
    assert [miss.reason for miss in result.misses] == [reason]
    assert at in result.misses[0].at
