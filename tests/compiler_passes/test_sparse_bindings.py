"""Layers that read the rows of another layer's choice are bound to an earlier layer that makes such a choice."""

from dataclasses import replace
from typing import Any

import pytest
from tiny_engine import lowered

from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify
from kvc.diagnostics import KvcError
from kvc.graphs.program import program_from_json

SPEC = "tiny-dsa-nvfp4-fp8"  # layers 0 and 1 have an indexer, layer 2 shares that of layer 1


def test_the_nearest_earlier_layer_is_bound() -> None:
    program = lowered(SPEC)[0]
    assert [binding.selected_from for binding in program.bindings] == [None, None, 1]
    read = program_from_json(program.to_json(), program.named_graphs())
    assert read.bindings == program.bindings


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (None, "selected.rows is taken from layer None, which is no earlier layer"),
        (2, "selected.rows is taken from layer 2, which is no earlier layer"),
        (7, "selected.rows is taken from layer 7, which is no earlier layer"),
    ],
)
def test_another_layer_is_refused(source: Any, problem: str) -> None:
    program = lowered(SPEC)[0]
    *others, last = program.bindings
    broken = replace(program, bindings=(*others, replace(last, selected_from=source)))
    with pytest.raises(KvcError, match=f"KVC330.*layer 2: {problem}"):
        verify(broken, Stage.LOWERED, after="fuse_x")


def test_a_layer_that_chooses_nothing_is_refused() -> None:
    program = lowered(SPEC)[0]
    first, _, last = program.bindings
    chain = (first, replace(last, layer=1), replace(last, selected_from=1))
    with pytest.raises(KvcError, match=r"selected.rows is i32\[T, 24\]; layer 1 makes nothing in the context phase"):
        verify(replace(program, bindings=chain), Stage.LOWERED, after="fuse_x")


def test_a_graph_that_is_lost_is_a_finding() -> None:
    program = lowered(SPEC)[0]
    left = {key: graph for key, graph in program.graphs.items() if key != ("mla_sparse0", "context")}
    with pytest.raises(KvcError, match=r"KVC330.*there is no graph for this phase"):
        verify(replace(program, graphs=left), Stage.LOWERED, after="fuse_x")
