from pass_texts import DECODE, check_rewrite, graph_text, program_of

from kvc.compiler_passes.canonicalize import Canonicalize
from kvc.graphs.text import print_graph

STORE = "kvc.store_rows(%3, [%11, %12], %10) {tokens_per_page=4}"


def test_dead_calls_and_unused_placeholders_go_and_inputs_stay() -> None:
    before = graph_text("""
        %11: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {layout=half}
        %12: bf16[T, 4, 8] = kvc.rope(%11, %6, %7) {layout=half}
        return out=%0
    """)
    after = graph_text(
        """
        %0: bf16[T, 4, 8] = input.q
        %1: bf16[T, 2, 8] = input.k
        %2: bf16[T, 2, 8] = input.v
        return out=%0
        """,
        placeholders="",
    )
    result = check_rewrite(Canonicalize(), before, after, fired=10)
    assert result.detail == "2 dead, 8 unused placeholders"


def test_a_store_is_not_dead() -> None:
    text = graph_text(f"""
        %11: u8[T, 2, 8] = kvc.quantize_fp8(%1, %4)
        %12: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
        {STORE}
        %13: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {{layout=half}}
        %14: bf16[T, 4, 8], %15: f32[T, 4] = kvc.gqa_decode(%13, %3, %9, %8, %4, %5) {DECODE}
        return out=%14
    """)
    check_rewrite(Canonicalize(), text, text, fired=0)


def test_equal_calls_become_one() -> None:
    before = graph_text("""
        %11: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {layout=half}
        %12: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {layout=half}
        %13: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {layout=interleaved}
        return a=%11, b=%12, c=%13
    """)
    result = Canonicalize().run(program_of(before))
    (graph,) = result.program.graphs.values()
    assert print_graph(graph).count("kvc.rope") == 2
    assert "return a=%5, b=%5, c=%6" in print_graph(graph)


def test_equal_reads_with_a_write_between_stay_apart() -> None:
    read = f"kvc.gqa_decode(%0, %3, %9, %8, %4, %5) {DECODE}"
    before = graph_text(f"""
        %11: u8[T, 2, 8] = kvc.quantize_fp8(%1, %4)
        %12: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
        %13: bf16[T, 4, 8], %14: f32[T, 4] = {read}
        %15: bf16[T, 4, 8], %16: f32[T, 4] = {read}
        {STORE}
        %17: bf16[T, 4, 8], %18: f32[T, 4] = {read}
        return first=%13, again=%15, later=%17
    """)
    (graph,) = Canonicalize().run(program_of(before)).program.graphs.values()
    calls = [line.split("kvc.")[1].split("(")[0] for line in print_graph(graph).splitlines() if "kvc." in line]
    assert calls == ["gqa_decode", "quantize_fp8", "quantize_fp8", "store_rows", "gqa_decode"]


def test_order_does_not_depend_on_emission() -> None:
    calls = {
        "a": "%11: u8[T, 2, 8] = kvc.quantize_fp8(%1, %4)",
        "b": "%12: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)",
        "c": "%13: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {layout=half}",
    }
    decode = f"%14: bf16[T, 4, 8], %15: f32[T, 4] = kvc.gqa_decode(%13, %3, %9, %8, %4, %5) {DECODE}"
    texts = set()
    for order in ("abc", "bca", "cba"):
        text = graph_text("\n".join([*(calls[name] for name in order), STORE, decode, "return out=%14"]))
        (graph,) = Canonicalize().run(program_of(text)).program.graphs.values()
        texts.add(print_graph(graph))
    assert len(texts) == 1
