"""fold_overlay and fold_gather_into_attention: texts before and after, and why not."""

import pytest
from pass_texts import check_rewrite, graph_text, program_of

from kvc.compiler_passes.fold_gather_into_attention import FoldGatherIntoAttention
from kvc.compiler_passes.fold_overlay import FoldOverlay
from kvc.compiler_passes.fuse_append import FuseAppend

LAYER = """
  %0: bf16[T, 4, 16] = input.q
  %1: u8[P, 160] = pool.history
  %2: f32[2] = scale.k
  %3: f32[2] = scale.v
  %4: u8[Q, 512] = pool.twin
  %5: i32[B] = prologue.committed
  %6: i32[B] = prologue.lengths
  %7: i32[B, W] = prologue.page_table_0
  %8: i32[B, W] = prologue.page_table_1
"""
FIELDS = "dims=[16, 16], dtype=torch.f32, encoding=nvfp4, fields=[k, v], heads=[2, 2], tokens_per_page=4"
GATHER = f"%9: f32[B, W*4, 2, 16], %10: f32[B, W*4, 2, 16] = kvc.gather_rows(%1, %7, %6, [%2, %3]) {{{FIELDS}}}"
KEPT = "encoding=bf16, fields=[k, v], first=4, last=8, tokens_per_page=4, unit=token"
OVERLAY = (
    "%11: f32[B, W*4, 2, 16], %12: f32[B, W*4, 2, 16] = "
    f"kvc.overlay_retained_rows([%9, %10], %4, %8, %6, %5, [none, none]) {{{KEPT}}}"
)
ATTEND = (
    "%13: bf16[T, 4, 16], %14: f32[T, 4] = kvc.gqa_decode_gathered(%0, [%11, %12], %7, %6) "
    "{softmax_scale=0.25, tokens_per_page=4}"
)
RETURN = "return out=%13"
MIXED_FIELDS = (
    "dims=[16, 16], dtype=torch.f32, encoding=nvfp4, fields=[k, v], first=4, heads=[2, 2], last=8, tokens_per_page=4, "
    "twin_encoding=bf16, unit=token"
)
MIXED = (
    "%9: f32[B, W*4, 2, 16], %10: f32[B, W*4, 2, 16] = "
    f"kvc.gather_mixed_rows(%1, %7, %4, %8, %6, %5, [%2, %3], [none, none]) {{{MIXED_FIELDS}}}"
)
FOLDED = (
    "%9: bf16[T, 4, 16], %10: f32[T, 4] = kvc.gqa_decode(%0, %1, %7, %6, %2, %3, %4, %8, %5) {encoding=nvfp4, first=4, "
    "kv_heads=2, last=8, softmax_scale=0.25, tokens_per_page=4, twin_encoding=bf16, unit=token, v_head_dim=16}"
)


def text(*lines: str) -> str:
    return graph_text("\n".join(lines), LAYER)


def gathered_then_attended(gather: str) -> str:
    attend = ATTEND.replace("%13", "%11").replace("%14", "%12").replace("[%11, %12]", "[%9, %10]")
    return text(gather, attend, "return out=%11")


def test_an_overlay_is_folded() -> None:
    check_rewrite(FoldOverlay(), text(GATHER, OVERLAY, ATTEND, RETURN), gathered_then_attended(MIXED), fired=1)


def test_a_mixed_gather_is_folded_into_attention() -> None:
    after = text(FOLDED, "return out=%9")
    check_rewrite(FoldGatherIntoAttention(), gathered_then_attended(MIXED), after, fired=1)


def test_a_gather_of_one_pool_is_folded_into_attention() -> None:
    after = text(
        "%9: bf16[T, 4, 16], %10: f32[T, 4] = kvc.gqa_decode(%0, %1, %7, %6, %2, %3) {encoding=nvfp4, kv_heads=2, "
        "softmax_scale=0.25, tokens_per_page=4, v_head_dim=16}",
        "return out=%9",
    )
    check_rewrite(FoldGatherIntoAttention(), gathered_then_attended(GATHER), after, fired=1)


# What is replaced in the graph that folds -> why it does not, and where.
OVERLAY_MISSES = {
    "rows in another order": (
        {"([%9, %10], %4": "([%10, %9], %4"},
        "the rows are not the results of one kvc.gather_rows, all of them in order",
        "kvc.overlay_retained_rows",
    ),
    "rows needed without the overlay": (
        {RETURN: "return out=%13, k=%9"},
        "gathered rows go to the output too",
        "return out=",
    ),
    "other lengths": (
        {"%8, %6, %5, [none": "%8, %5, %5, [none"},
        "lengths is prologue.committed, lengths of kvc.gather_rows is prologue.lengths",
        "kvc.overlay_retained_rows",
    ),
    "rows that nothing gathered": (
        {OVERLAY: OVERLAY.replace("%9, %10", "%15, %16"), ATTEND: ATTEND},
        "rows[0] is aten.neg, not kvc.gather_rows",
        "kvc.overlay_retained_rows",
    ),
    "a write between": (
        {OVERLAY: f"kvc.store_rows(%1, [%17, %17, %18, %18], %19) {{tokens_per_page=4}}\n{OVERLAY}"},
        "kvc.store_rows writes the pool between the gather and kvc.overlay_retained_rows",
        "kvc.store_rows",
    ),
}
EXTRA = {
    "rows that nothing gathered": "%15: f32[B, W*4, 2, 16] = aten.neg(%9)\n%16: f32[B, W*4, 2, 16] = aten.neg(%10)",
}
EXTRA_INPUTS = {
    "a write between": (
        "%17: u8[T, 2, 8] = input.planes\n%18: u8[T, 2, 1] = input.scales\n%19: i32[T] = prologue.rows_0"
    ),
}


def changed(case: str, changes: dict[str, str], *lines: str) -> str:
    body = "\n".join(lines)
    for old, new in changes.items():
        assert old in body
        body = body.replace(old, new)
    body = body.replace(GATHER, f"{GATHER}\n{EXTRA.get(case, '')}")
    return graph_text(body, LAYER + "\n" + EXTRA_INPUTS.get(case, ""))


@pytest.mark.parametrize("case", OVERLAY_MISSES)
def test_why_an_overlay_stays(case: str) -> None:
    changes, reason, at = OVERLAY_MISSES[case]
    result = FoldOverlay().run(program_of(changed(case, changes, GATHER, OVERLAY, ATTEND, RETURN)))
    assert result.fired == 0 and [miss.reason for miss in result.misses] == [reason]
    assert at in result.misses[0].at


ATTENTION_MISSES = {
    "an overlay that was not folded": (
        {},
        (GATHER, OVERLAY, ATTEND, RETURN),
        "rows[0] is kvc.overlay_retained_rows, not kvc.gather_rows or kvc.gather_mixed_rows",
        "kvc.gqa_decode_gathered",
    ),
    "rows that were rounded": (
        {"dtype=torch.f32": "dtype=torch.bf16", "f32[B, W*4": "bf16[B, W*4"},
        (MIXED, ATTEND.replace("[%11, %12]", "[%9, %10]"), RETURN),
        "rows are gathered as bf16; attention that reads pages does not round them",
        "kvc.gather_mixed_rows",
    ),
    "another table": (
        {"[%9, %10], %7": "[%9, %10], %8"},
        (MIXED, ATTEND.replace("[%11, %12]", "[%9, %10]"), RETURN),
        "page_table is prologue.page_table_1, page_table of kvc.gather_mixed_rows is prologue.page_table_0",
        "kvc.gqa_decode_gathered",
    ),
    "longer than what was gathered": (
        {"%7, %6)": "%7, %5)"},
        (MIXED, ATTEND.replace("[%11, %12]", "[%9, %10]"), RETURN),
        "lengths is prologue.committed, lengths of kvc.gather_mixed_rows is prologue.lengths",
        "kvc.gqa_decode_gathered",
    ),
}


@pytest.mark.parametrize("case", ATTENTION_MISSES)
def test_why_a_gather_stays(case: str) -> None:
    changes, lines, reason, at = ATTENTION_MISSES[case]
    result = FoldGatherIntoAttention().run(program_of(changed(case, changes, *lines)))
    assert result.fired == 0 and [miss.reason for miss in result.misses] == [reason]
    assert at in result.misses[0].at


STEP = """
  %0: bf16[T, 2, 16] = input.k
  %1: bf16[T, 2, 16] = input.v
  %2: u8[P, 160] = pool.history
  %3: f32[2] = scale.k
  %4: f32[2] = scale.v
  %5: u8[Q, 512] = pool.twin
  %6: i32[T] = prologue.rows_0
  %7: i32[T] = prologue.rows_1
"""
BOTH_STORES = """
  %8: u8[T, 2, 8], %9: u8[T, 2, 1] = kvc.quantize_nvfp4(%0, %3)
  %10: u8[T, 2, 8], %11: u8[T, 2, 1] = kvc.quantize_nvfp4(%1, %4)
  kvc.store_rows(%2, [%8, %10, %9, %11], %6) {tokens_per_page=4}
  kvc.store_retained_rows(%5, [%0, %1], %7, none, none, [none, none]) {encoding=bf16, fields=[k, v], tokens_per_page=4}
  return k=%0
"""


def test_both_stores_become_one_append() -> None:
    after = """
      %8: bf16[0, 2, 16], %9: bf16[0, 2, 16] = kvc.append_gqa(%2, none, %0, %1, none, none, %6, %3, %4, %5, %7, none, \
none) {encoding=nvfp4, keep_k=false, layout=none, tokens_per_page=4, twin_encoding=bf16}
      return k=%0
    """
    check_rewrite(FuseAppend(), graph_text(BOTH_STORES, STEP), graph_text(after, STEP), fired=1)


TWIN_MISSES = {
    "other values": (
        {"%5, [%0, %1]": "%5, [%1, %0]"},
        "the twin's k is input.v, the history's input.k",
    ),
    "a rotation of its own": (
        {
            "%7, none, none, [": "%7, %13, %12, [",
            "fields=[k, v], tokens": "fields=[k, v], layout=half, rotated=k, tokens",
            "%8: u8[T, 2, 8], %9": "%12: i32[T] = aten.neg(%6)\n%13: f32[16, 16] = aten.neg(%14)\n%8: u8[T, 2, 8], %9",
        },
        "the twin's store rotates k itself",
    ),
}


@pytest.mark.parametrize("case", TWIN_MISSES)
def test_why_a_twin_is_stored_apart(case: str) -> None:
    changes, reason = TWIN_MISSES[case]
    body = BOTH_STORES
    for old, new in changes.items():
        assert old in body
        body = body.replace(old, new)
    result = FuseAppend().run(program_of(graph_text(body, f"{STEP}\n  %14: f32[16, 16] = table.rope")))
    assert result.fired == 0 and [miss.reason for miss in result.misses] == [reason]
    assert "kvc.store_retained_rows" in result.misses[0].at
