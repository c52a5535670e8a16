"""Rows of a scratch in codes are read under the scale that they were made under; folded layers have no overlay."""

import pytest
from pass_texts import node_of
from tiny_engine import lowered

from kvc.compiler_passes.manager import program_text, run_passes
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify
from kvc.diagnostics import KvcError
from kvc.graphs.program import Program

SPEC = "tiny-dsa-nvfp4-fp8"


def reading_under_another_scale(op: str, argument: int, phase: str) -> Program:
    """The lowered program with the scale operand of one call swapped for the history's."""
    program = lowered(SPEC)[0]
    graph = program.graphs["mla_sparse0", phase]  # type: ignore[index]
    call = node_of(graph, op)
    other = next(node for node in graph.placeholders if node.meta["role"] == "scale" and node.target == "latent")
    call.update_arg(argument, other)
    return program


@pytest.mark.parametrize(
    ("op", "argument", "phase", "problem"),
    [
        ("kvc.mla_sparse", 8, "generation", "reads latent under scale.latent; it is encoded under scale.twin_latent"),
        ("kvc.mla_sparse", 8, "context", "reads rope under scale.latent; it is encoded under scale.twin_latent"),
        ("kvc.place_own_rows", 4, "context", "reads rows under scale.latent; it is encoded under scale.twin_latent"),
        ("kvc.overlay_retained_rows", 8, "generation", "reads rows under scale.latent; it is encoded under"),
    ],
)
def test_codes_read_under_another_scale(op: str, argument: int, phase: str, problem: str) -> None:
    with pytest.raises(KvcError, match=f"KVC328.*{problem}"):
        verify(reading_under_another_scale(op, argument, phase), Stage.LOWERED, after="fuse_x")


def test_the_folded_layer_has_no_overlay() -> None:
    """Both passes may be required: the store of an index key is no place where an append is missed."""
    program = lowered(SPEC)[0]
    assert "kvc.overlay_retained_rows" in program_text(program)
    folded = run_passes(program, require=["fold_overlay", "fuse_append"])[0]
    assert "overlay" not in program_text(folded) and "kvc.gather_mixed_rows" in program_text(folded)
