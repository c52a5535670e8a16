from dataclasses import replace

from pass_texts import first_difference, graph_text, program_of

from kvc.compiler_passes.hoist_step_invariants import HoistStepInvariants
from kvc.graphs.text import parse_graph, print_graph

LAYER = """
    %0: bf16[T, 2, 8] = input.k
    %1: i32[2, B, W] = step.slot_tables
    %2: i32[B] = step.committed
    %3: i32[B + 1] = step.query_starts
    %4: i32[T] = step.sequence_ids
    %5: i32[2, B, W] = kvc.copy_page_tables(%1) {lifecycles=[0, 1], offsets=[0, 0], pages_per_slot=[2, 3]}
    %6: i32[B, W] = aten.select.int(%5) {dim=0, index=POOL}
    %7: i32[T], %8: i32[B] = kvc.step_positions(%2, %3, %4)
    %9: i32[T] = kvc.write_rows(%6, %7, %4) {tokens_per_page=4}
"""


def layer(pool: int, returns: str, name: str) -> str:
    return graph_text(LAYER.replace("POOL", str(pool)) + f"    return {returns}", placeholders="", name=name)


def texts_after(*texts: str) -> dict[str, str]:
    result = HoistStepInvariants().run(program_of(*texts))
    return {name: print_graph(graph) for name, graph in result.program.named_graphs().items()}


def check(actual: str, expected: str) -> None:
    assert actual == expected, first_difference(expected, actual)


def test_two_signatures_share_what_is_equal() -> None:
    found = texts_after(
        layer(1, "x=%0, rows=%9, positions=%7", "gqa0.generation"),
        layer(0, "x=%0, rows=%9, lengths=%8, committed=%2", "gqa1.generation"),
    )
    check(
        found["gqa0.generation"],
        graph_text(
            """
            %0: bf16[T, 2, 8] = input.k
            %1: i32[T] = prologue.positions
            %2: i32[T] = prologue.rows_1
            return x=%0, rows=%2, positions=%1
            """,
            placeholders="",
        ),
    )
    check(
        found["prologue.generation"],
        graph_text(
            """
            %0: i32[2, B, W] = step.slot_tables
            %1: i32[B] = step.committed
            %2: i32[B + 1] = step.query_starts
            %3: i32[T] = step.sequence_ids
            %4: i32[T], %5: i32[B] = kvc.step_positions(%1, %2, %3)
            %6: i32[2, B, W] = kvc.copy_page_tables(%0) {lifecycles=[0, 1], offsets=[0, 0], pages_per_slot=[2, 3]}
            %7: i32[B, W] = aten.select.int(%6) {dim=0, index=1}
            %8: i32[T] = kvc.write_rows(%7, %4, %3) {tokens_per_page=4}
            %9: i32[B, W] = aten.select.int(%6) {dim=0, index=0}
            %10: i32[T] = kvc.write_rows(%9, %4, %3) {tokens_per_page=4}
            return positions=%4, rows_1=%8, committed=%1, lengths=%5, rows_0=%10
            """,
            placeholders="",
            name="prologue.generation",
        ),
    )


def test_any_op_of_the_step_moves_and_gets_a_name() -> None:
    """The pass knows no list of ops: here two of torch's own, equal in kind, apart by operand."""
    text = graph_text(
        """
        %0: i32[T] = input.x
        %1: i32[B] = step.committed
        %2: i32[B] = aten.neg(%1)
        %3: i32[B] = aten.neg(%2)
        %4: i32[T] = aten.neg(%0)
        return x=%4, a=%2, b=%3
        """,
        placeholders="",
    )
    found = texts_after(text)
    assert "return neg=%1, neg_2=%2" in found["prologue.generation"]
    assert "%3: i32[T] = aten.neg(%0)" in found["gqa0.generation"]


def test_phases_have_their_own_prologues() -> None:
    found = texts_after(layer(0, "rows=%9", "gqa0.generation"), layer(0, "lengths=%8", "gqa0.context"))
    assert "return rows_0=" in found["prologue.generation"]
    assert "return lengths=" in found["prologue.context"]


def test_equal_values_of_one_layer_become_one_placeholder() -> None:
    text = graph_text(
        """
        %0: i32[B] = step.committed
        %1: i32[B] = aten.neg(%0)
        %2: i32[B] = aten.neg(%0)
        return a=%1, b=%2
        """,
        placeholders="",
    )
    assert "%0: i32[B] = prologue.neg\n  return a=%0, b=%0" in texts_after(text)["gqa0.generation"]


def test_nothing_to_hoist_leaves_the_program_alone() -> None:
    program = program_of(graph_text("%0: i32[T] = input.x\nreturn x=%0", placeholders=""))
    prologue = parse_graph("graph prologue.generation\n  %0: i32[B] = step.committed\n  return committed=%0\n")
    program = replace(program, prologues={"generation": prologue})
    result = HoistStepInvariants().run(program)
    assert result.fired == 0
    assert result.program.prologues["generation"] is prologue
