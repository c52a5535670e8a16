"""What the tests of the verifier share."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pass_texts import DECODE, graph_text

from kvc.diagnostics import Diagnostic, KvcError
from kvc.graphs.graph import Graph, is_op

GOOD = graph_text(f"""
    %11: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {{layout=half}}
    %12: bf16[T, 2, 8] = kvc.rope(%1, %6, %7) {{layout=half}}
    %13: u8[T, 2, 8] = kvc.quantize_fp8(%12, %4)
    %14: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
    kvc.store_rows(%3, [%13, %14], %10) {{tokens_per_page=4}}  # a.yaml:8
    %15: bf16[T, 4, 8], %16: f32[T, 4] = kvc.gqa_decode(%11, %3, %9, %8, %4, %5) {DECODE}  # a.yaml:8
    return out=%15
""")


def found(call: Callable[..., None], *args: Any, **kwargs: Any) -> list[Diagnostic]:
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    return list(caught.value.diagnostics)


def check(diagnostics: list[Diagnostic], code: str, problem: str, at: str) -> None:
    first = diagnostics[0]
    assert (first.code, first.message) == (code, f"after fuse_x, gqa0.generation: {problem}")
    assert at in first.help


def node_of(graph: Graph, op: str) -> torch.fx.Node:
    return next(node for node in graph.calls if is_op(node, op))
