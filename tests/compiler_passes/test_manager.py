from collections.abc import Callable
from dataclasses import replace

import pytest
from tiny_engine import lowered

from kvc.compiler_passes.canonicalize import Canonicalize
from kvc.compiler_passes.fuse_append import FuseAppend
from kvc.compiler_passes.infra import ProgramPass, Result
from kvc.compiler_passes.manager import PIPELINE, program_text, run_passes
from kvc.compiler_passes.stages import Stage
from kvc.diagnostics import Diagnostic, KvcError, fail
from kvc.graphs.program import Program

NAMES = [one.name for one in PIPELINE]


def program(name: str = "tiny-fp8", **changes: object) -> Program:
    return replace(lowered(name)[0], **changes)  # type: ignore[arg-type]


def refused(*args, **kwargs) -> Diagnostic:
    with pytest.raises(KvcError) as caught:
        run_passes(*args, **kwargs)
    return caught.value.diagnostics[0]


def test_one_line_a_pass() -> None:
    _, log = run_passes(program())
    lines = log.lines()
    assert [line.split()[0] for line in lines] == NAMES
    fused = next(line for line in lines if line.startswith("fuse_append"))
    words = fused.split()
    assert words[1:7] == ["fired", "2", "18", "->", "12", "nodes"]
    assert words[7].isdigit() and words[8] == "ms"


def test_log_as_data_is_the_same_twice() -> None:
    first, second = (run_passes(program())[1].to_json() for _ in range(2))
    assert first == second
    fused = next(row for row in first if row["pass"] == "fuse_append")
    assert fused["fired_in"] == {"gqa0.context": 1, "gqa0.generation": 1}
    assert not any("second" in key or "ms" in key for row in first for key in row)


def test_explain_lists_misses_and_notes() -> None:
    _, log = run_passes(program(device="cuda", arch="sm_80"))
    assert "reads lengths on the host" not in "\n".join(log.lines())
    explained = "\n".join(log.lines(explain=True))
    assert "missed in gqa0.generation: kernel reference cannot be captured on cuda" in explained
    assert "reads lengths on the host" in explained
    assert "note: gqa_decode takes the generic kernel on sm_80" in explained


def test_the_given_program_is_left_alone() -> None:
    given = program("tiny-mixed")
    text = program_text(given)
    run_passes(given)
    assert program_text(given) == text
    assert not given.prologues and given.capture is None


@pytest.mark.parametrize("wanted", ["fuse_append", "all"])
def test_print_after(wanted: str) -> None:
    printed: dict[str, str] = {}
    final, _ = run_passes(program(), print_after=wanted, printer=printed.__setitem__)
    assert list(printed) == (NAMES if wanted == "all" else [wanted])
    assert "kvc.append_gqa" in printed["fuse_append"]
    if wanted == "all":
        assert printed[NAMES[-1]] == program_text(final)


UNKNOWN = {
    "fuse_apend": ("there is no pass 'fuse_apend'", "did you mean fuse_append?"),
    "zzz": ("there is no pass 'zzz'", "passes: canonicalize, hoist_step_invariants"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_pass(name: str) -> None:
    message, help = UNKNOWN[name]
    for found in (refused(program(), require=[name]), refused(program(), print_after=name)):
        assert (found.code, found.message) == ("KVC310", message)
        assert found.help.startswith(help)


# ---- compile.require ---------------------------------------------------------------------------------------------


def test_required_passes_that_fire() -> None:
    for_others = ("fold_overlay", "fold_gather_into_attention", "fuse_expand_quantize", "assign_layouts")
    final, _ = run_passes(program("tiny-mixed"), require=[name for name in NAMES if name not in for_others])
    assert final.capture is not None


def test_required_pass_that_finds_nothing_cites_the_nearest_chain() -> None:
    found = refused(lowered("tiny-fp8", None)[0], require=["fuse_rope_quantize"])
    assert found.code == "KVC312"
    reason = "argument x is input.k, not kvc.rope"
    assert found.message == f"required pass fuse_rope_quantize did not fire in gqa0.context: {reason}"
    assert found.help.startswith("nearest: %") and "kvc.quantize_fp8" in found.help
    assert found.source is not None and (found.source.path, found.source.line) == ("tiny-fp8.yaml", 9)


def test_required_pass_that_misses_in_one_graph() -> None:
    found = refused(program(device="cuda", arch="sm_80"), require=["capture_cuda_graphs"])
    assert found.code == "KVC312"
    assert "kernel reference cannot be captured on cuda" in found.message


def test_required_pass_without_anything_near() -> None:
    nothing_fused = [one for one in PIPELINE if not one.optional]
    final, _ = run_passes(program(), passes=nothing_fused[:1])
    found = refused(final, require=["canonicalize"], passes=nothing_fused[:1])
    assert found.message == "required pass canonicalize did not fire: the program has nothing that it could rewrite"


# ---- passes that go wrong ----------------------------------------------------------------------------------------


class Scripted(ProgramPass):
    """Does what the test says."""

    name = "scripted"
    requires = Stage.LOWERED
    ensures = Stage.LOWERED

    def __init__(self, act: Callable[[Program], Result]) -> None:
        self.act = act

    def run(self, program: Program) -> Result:
        return self.act(program)


def test_a_pass_that_breaks_down_is_named_with_those_before_it() -> None:
    def act(given: Program) -> Result:
        raise KeyError("scale")

    found = refused(program(), passes=[Canonicalize(), Scripted(act)])
    assert (found.code, found.message) == ("KVC311", "pass scripted failed after [canonicalize]: KeyError: 'scale'")


def test_a_finding_of_a_pass_keeps_its_code_and_help() -> None:
    def act(given: Program) -> Result:
        raise fail("KVC314", "no kernel", help="there is none")

    found = refused(program(), passes=[Scripted(act)])
    assert (found.code, found.message) == ("KVC314", "pass scripted failed after []: no kernel")
    assert found.help == "there is none"


def test_a_pass_that_makes_an_illegal_program_is_named() -> None:
    def act(given: Program) -> Result:
        graph = given.graphs["gqa0", "generation"].copy()
        store = next(node for node in graph.calls if "store_rows" in str(node.target))
        graph.fx.erase_node(store)
        return Result(replace(given, graphs=dict(given.graphs) | {("gqa0", "generation"): graph}), 1)

    found = refused(program(), passes=[Scripted(act)])
    assert found.code == "KVC327"
    assert found.message.startswith("after scripted, gqa0.generation: reads pool.history before")


def test_a_pass_out_of_order() -> None:
    found = refused(program(), passes=[Canonicalize(), FuseAppend()])
    assert found.code == "KVC313"
    assert found.message.endswith("it needs stage FUSED, the program is LOWERED")
