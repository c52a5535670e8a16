import pytest
from pass_texts import DECODE, check_miss, check_rewrite, graph_text, program_of

from kvc.compiler_passes.fuse_append import FuseAppend

ROTATE = """
    %11: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {layout=half}
    %12: bf16[T, 2, 8], %13: u8[T, 2, 8] = kvc.rope_quantize(%1, %6, %7, %4) {encoding=fp8, layout=half}
    %14: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
"""
STORE = "kvc.store_rows(%3, [%13, %14], %10) {tokens_per_page=4}"
ATTEND = f"""
    %15: bf16[T, 4, 8], %16: f32[T, 4] = kvc.gqa_decode(%11, %3, %9, %8, %4, %5) {DECODE}
    return out=%15
"""


def body(*parts: str) -> str:
    return graph_text("\n".join(parts))


def test_generation() -> None:
    after = graph_text(f"""
        %11: bf16[T, 4, 8], %12: bf16[0, 2, 8] = kvc.append_gqa(%3, %0, %1, %2, %6, %7, %10, %4, %5) \
{{encoding=fp8, keep_k=false, layout=half, tokens_per_page=4}}
        %13: bf16[T, 4, 8], %14: f32[T, 4] = kvc.gqa_decode(%11, %3, %9, %8, %4, %5) {DECODE}
        return out=%13
    """)
    check_rewrite(FuseAppend(), body(ROTATE, STORE, ATTEND), after, fired=1)


def test_rotated_k_is_kept_where_it_is_used() -> None:
    """As in the context phase, where own rows are not read back from the pool."""
    before = body(ROTATE, STORE, ATTEND.replace("out=%15", "out=%15, k=%12"))
    after = graph_text(f"""
        %11: bf16[T, 4, 8], %12: bf16[T, 2, 8] = kvc.append_gqa(%3, %0, %1, %2, %6, %7, %10, %4, %5) \
{{encoding=fp8, keep_k=true, layout=half, tokens_per_page=4}}
        %13: bf16[T, 4, 8], %14: f32[T, 4] = kvc.gqa_decode(%11, %3, %9, %8, %4, %5) {DECODE}
        return out=%13, k=%12
    """)
    check_rewrite(FuseAppend(), before, after, fired=1)


def test_without_rope_q_takes_no_part() -> None:
    before = graph_text(f"""
        %11: u8[T, 2, 8] = kvc.quantize_fp8(%1, %4)
        %12: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
        kvc.store_rows(%3, [%11, %12], %10) {{tokens_per_page=4}}
        %13: bf16[T, 4, 8], %14: f32[T, 4] = kvc.gqa_decode(%0, %3, %9, %8, %4, %5) {DECODE}
        return out=%13
    """)
    after = graph_text(f"""
        %11: bf16[0, 2, 8], %12: bf16[0, 2, 8] = kvc.append_gqa(%3, none, %1, %2, none, none, %10, %4, %5) \
{{encoding=fp8, keep_k=false, layout=none, tokens_per_page=4}}
        %13: bf16[T, 4, 8], %14: f32[T, 4] = kvc.gqa_decode(%0, %3, %9, %8, %4, %5) {DECODE}
        return out=%13
    """)
    check_rewrite(FuseAppend(), before, after, fired=1)


# What is replaced in the graph that fuses -> why it does not, and where.
MISSES = {
    "V before K": (
        {"[%13, %14]": "[%14, %13]"},
        "the second stored field, V, is rotated",
        "kvc.rope_quantize",
    ),
    "planes used elsewhere": (
        {"return out=%15": "return out=%15, plane=%14"},
        "an encoded plane is used by the output too",
        "return out=",
    ),
    "a plane that is no encoding": (
        {STORE: "%20: u8[T, 2, 8] = aten.neg(%14)\n  " + STORE.replace("%14", "%20")},
        "a stored plane comes from aten.neg, which does not encode",
        "kvc.store_rows",
    ),
    "q is not rotated": (
        {"kvc.gqa_decode(%11": "kvc.gqa_decode(%0"},
        "K is rotated, but q is input.q",
        "kvc.rope_quantize",
    ),
    "q at other positions": (
        {"kvc.rope(%0, %6, %7)": "kvc.rope(%0, %6, %10)"},
        "positions of q and k differ: prologue.rows_0 and prologue.positions",
        "kvc.rope(",
    ),
    "q in another layout": (
        {"kvc.rope(%0, %6, %7) {layout=half}": "kvc.rope(%0, %6, %7) {layout=interleaved}"},
        "layout of q and k differ: interleaved and half",
        "kvc.rope(",
    ),
}


@pytest.mark.parametrize("case", MISSES)
def test_why_not(case: str) -> None:
    changes, reason, at = MISSES[case]
    text = body(ROTATE, STORE, ATTEND)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    text = body(text.split("prologue.rows_0\n")[1])
    result = FuseAppend().run(program_of(text))
    assert result.fired == 0
    assert result.misses[0].reason == reason
    assert at in result.misses[0].at


STORES = {
    "by different stores": (
        """
        kvc.store_rows(%2, [%3], %1) {tokens_per_page=4}
        %4: u8[T, 2, 8] = kvc.quantize_fp8(%0, %5)
        kvc.store_rows(%2, [%4], %1) {tokens_per_page=4}
        """,
        "K and V are stored by different stores, 2 in this graph",
    ),
    "one field": (
        "kvc.store_rows(%2, [%3], %1) {tokens_per_page=4}",
        "the number of encoded fields stored here is 1, not 2 (K and V)",
    ),
}


@pytest.mark.parametrize("case", STORES)
def test_fields_stored_apart(case: str) -> None:
    stores, reason = STORES[case]
    text = f"""
        %0: bf16[T, 2, 8] = input.k
        %1: i32[T] = prologue.rows_0
        %2: u8[P, 64] = pool.history
        %5: f32[2] = scale.k
        %3: u8[T, 2, 8] = kvc.quantize_fp8(%0, %5)
        {stores}
        return out=%0
    """
    result = FuseAppend().run(program_of(graph_text(text, placeholders="")))
    assert result.fired == 0
    assert {miss.reason for miss in result.misses} == {reason}


def test_fields_in_different_encodings() -> None:
    text = """
        %0: bf16[T, 2, 8] = input.k
        %1: i32[T] = prologue.rows_0
        %2: u8[P, 192] = pool.history
        %3: f32[2] = scale.k
        %4: u8[T, 2, 8] = kvc.quantize_fp8(%0, %3)
        %5: u8[T, 2, 16] = kvc.quantize_bf16(%0, none)
        kvc.store_rows(%2, [%4, %5], %1) {tokens_per_page=4}
        return out=%0
    """
    reason = "K is encoded as fp8, V as bf16"
    check_miss(FuseAppend(), graph_text(text, placeholders=""), reason, "kvc.store_rows")


def test_k_rotated_by_its_own_op() -> None:
    text = graph_text(f"""
        %11: bf16[T, 4, 8] = kvc.rope(%0, %6, %7) {{layout=half}}
        %12: bf16[T, 2, 8] = kvc.rope(%1, %6, %7) {{layout=half}}
        %13: u8[T, 2, 8] = kvc.quantize_fp8(%12, %4)
        %14: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
        {STORE}
        {ATTEND}
    """)
    check_miss(FuseAppend(), text, "K is rotated by an op of its own", "%12: bf16[T, 2, 8] = kvc.rope")


def test_rotated_q_needed_before_the_store() -> None:
    text = graph_text(f"""
        {ROTATE}
        %15: bf16[T, 4, 8] = aten.neg(%11)
        {STORE}
        %16: bf16[T, 4, 8], %17: f32[T, 4] = kvc.gqa_decode(%11, %3, %9, %8, %4, %5) {DECODE}
        return out=%16, before=%15
    """)
    check_miss(FuseAppend(), text, "a rotated value is used before the store", "aten.neg")


def test_two_queries_attend() -> None:
    text = graph_text(f"""
        {ROTATE}
        {STORE}
        %15: bf16[T, 4, 8], %16: f32[T, 4] = kvc.gqa_decode(%11, %3, %9, %8, %4, %5) {DECODE}
        %17: bf16[T, 4, 8], %18: f32[T, 4] = kvc.gqa_decode(%0, %3, %9, %8, %4, %5) {DECODE}
        return out=%15, other=%17
    """)
    check_miss(FuseAppend(), text, "2 queries attend to the pool, not one", "kvc.store_rows")


def test_q_made_after_the_store() -> None:
    text = graph_text(f"""
        %11: bf16[T, 2, 8], %12: u8[T, 2, 8] = kvc.rope_quantize(%1, %6, %7, %4) {{encoding=fp8, layout=half}}
        %13: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)
        kvc.store_rows(%3, [%12, %13], %10) {{tokens_per_page=4}}
        %14: bf16[T, 4, 8] = aten.neg(%0)
        %15: bf16[T, 4, 8] = kvc.rope(%14, %6, %7) {{layout=half}}
        %16: bf16[T, 4, 8], %17: f32[T, 4] = kvc.gqa_decode(%15, %3, %9, %8, %4, %5) {DECODE}
        return out=%16
    """)
    check_miss(FuseAppend(), text, "q is made after the store", "kvc.rope(%14")
