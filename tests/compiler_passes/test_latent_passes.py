"""Before and after of the passes for FP8 context attention over latent rows, and every gate."""

from collections.abc import Iterator

import pytest
import torch
from pass_texts import check_miss, check_rewrite, found, graph_text, node_of, program_of

from kvc.compiler_passes.assign_layouts import AssignLayouts
from kvc.compiler_passes.elide_requantize import ElideRequantize
from kvc.compiler_passes.fuse_expand_quantize import FuseExpandQuantize
from kvc.compiler_passes.stages import Stage
from kvc.compiler_passes.verifier import verify_graph
from kvc.graphs.text import parse_graph, print_graph

# 3 heads of 16 + 16 values, V of 16, latents of 32, fp8, 16 tokens a page; step values are hoisted.
LATENT = """
  %0: bf16[T, 3, 16] = input.q_nope
  %1: bf16[T, 3, 16] = input.q_rope
  %2: bf16[T, 1, 32] = input.latent
  %3: bf16[T, 1, 16] = input.k_rope
  %4: u8[P, 768] = pool.history
  %5: f32[2] = scale.latent
  %6: f32[2] = scale.context_q
  %7: f32[2] = scale.context_k
  %8: f32[2] = scale.context_v
  %9: bf16[3, 16, 32] = weight.w_uk
  %10: bf16[3, 32, 16] = weight.w_uv
  %11: i32[B] = prologue.committed
  %12: i32[B + 1] = prologue.query_starts
  %13: i32[B, W] = prologue.page_table_0
"""
NAME = "mla0.context"
REST = "%4, %13, %11, %12, %9, %10, %5, %5, %6, %7, %8"
HOW = "chunk_tokens=32, encoding=fp8, softmax_scale=0.25, tokens_per_page=16"
EXPAND = "%14: bf16[T, 3, 32], %15: bf16[T, 3, 16] = kvc.expand_mla(%2, %3, %9, %10, none, none, none)"
CODES = "%16: u8[T, 3, 32] = kvc.quantize_fp8(%14, %7)\n%17: u8[T, 3, 16] = kvc.quantize_fp8(%15, %8)"
ATTEND = f"%18: bf16[T, 3, 16], %19: f32[T, 3] = kvc.mla_context(%0, %1, %16, %17, {REST}) {{{HOW}}}"
FUSED = f"""
    %14: u8[T, 3, 32], %15: u8[T, 3, 16] = kvc.expand_mla(%2, %3, %9, %10, none, %7, %8)
    %16: bf16[T, 3, 16], %17: f32[T, 3] = kvc.mla_context(%0, %1, %14, %15, {REST}) {{{HOW}}}
    return out=%16
"""


def text(*lines: str, placeholders: str = LATENT) -> str:
    return graph_text("\n".join(lines), placeholders, NAME)


UNFUSED = text(EXPAND, CODES, ATTEND, "return out=%18")


# ---- fuse_expand_quantize ----------------------------------------------------------------------------------------


def test_expansion_writes_codes() -> None:
    check_rewrite(FuseExpandQuantize(), UNFUSED, text(FUSED), fired=1)


def test_codes_of_the_activation_dtype_of_a_spec_in_f32() -> None:
    before, after = (part.replace("bf16", "f32") for part in (UNFUSED, text(FUSED)))
    check_rewrite(FuseExpandQuantize(), before, after, fired=1)


GATES = {
    "fp8 cache": (
        UNFUSED.replace("u8[P, 768]", "u8[P, 1536]")
        .replace("%5, %5, %6", "none, none, %6")
        .replace("encoding=fp8", "encoding=bf16"),
        "the cache is stored as bf16, not as fp8",
        "kvc.mla_context",
    ),
    "activation dtype": (UNFUSED.replace("bf16", "f16"), "activations are f16, not bf16 or f32", "kvc.mla_context"),
    "head dims": (
        UNFUSED.replace("bf16[3, 32, 16] = weight", "bf16[3, 32, 24] = weight")
        .replace("%15: bf16[T, 3, 16]", "%15: bf16[T, 3, 24]")
        .replace("%17: u8[T, 3, 16]", "%17: u8[T, 3, 24]")
        .replace("%18: bf16[T, 3, 16]", "%18: bf16[T, 3, 24]"),
        "V has 24 values a head, no multiple of 16",
        "kvc.expand_mla",
    ),
    "scale": (
        UNFUSED.replace("quantize_fp8(%15, %8)", "quantize_fp8(%15, %7)"),
        "v_scale: encoded under scale.context_k, read under scale.context_v",
        "kvc.mla_context",
    ),
    "cp": (
        UNFUSED.replace("return out=%18", "return out=%18, lse=%19"),
        "its lse is used by the output: ranks merge partial results",
        "kvc.mla_context",
    ),
}


@pytest.mark.parametrize("gate", GATES)
def test_gates(gate: str) -> None:
    before, reason, at = GATES[gate]
    check_miss(FuseExpandQuantize(), before, f"gate {gate}: {reason}", at)


@pytest.fixture
def other_attention() -> Iterator[None]:
    """An attention that takes K and V in another way."""
    library = torch.library.Library("kvc", "FRAGMENT")
    library.define("other_attention(Tensor q, Tensor k, Tensor v, Tensor pool) -> Tensor")
    torch.library.register_fake("kvc::other_attention", lambda q, k, v, pool: torch.empty_like(q), lib=library)
    yield
    library._destroy()


def test_gate_of_other_attention(other_attention: None) -> None:
    attend = "%18: bf16[T, 3, 16] = kvc.other_attention(%0, %16, %17, %4)"
    reason = "gate sparse: K and V go to kvc.other_attention, not to kvc.mla_context"
    check_miss(FuseExpandQuantize(), text(EXPAND, CODES, attend, "return out=%18"), reason, "kvc.other_attention")


OTHER_USES = {
    "K is needed unquantized too: it goes to kvc.quantize_fp8 and the output": ("out=%18", "out=%18, k=%14"),
    "V is needed unquantized too: it goes to kvc.quantize_fp8 and the output": ("out=%18", "out=%18, v=%15"),
    "the codes of K and V go to kvc.mla_context and the output, not to one attention": ("out=%18", "out=%18, k=%16"),
}


@pytest.mark.parametrize("reason", OTHER_USES)
def test_codes_or_values_that_are_used_elsewhere(reason: str) -> None:
    result = FuseExpandQuantize().run(program_of(UNFUSED.replace(*OTHER_USES[reason])))
    expected = reason.replace("V is needed unquantized too: it goes", "K is quantized, V goes")
    assert [miss.reason for miss in result.misses] == [expected] and result.fired == 0


def test_v_alone_is_quantized() -> None:
    lines = (EXPAND, "%16: u8[T, 3, 16] = kvc.quantize_fp8(%15, %8)", "return k=%14, v=%16")
    check_miss(FuseExpandQuantize(), text(*lines), "V is quantized, K goes to the output", "kvc.quantize_fp8")


def test_nearest_expansion() -> None:
    attend = f"%16: bf16[T, 3, 16], %17: f32[T, 3] = kvc.mla_context(%0, %1, %14, %15, {REST}) {{{HOW}}}"
    attend = attend.replace("%6, %7, %8", "none, none, none")
    (miss,) = FuseExpandQuantize().nearest(program_of(text(EXPAND, attend, "return out=%16")))
    assert miss.reason == "K goes to kvc.mla_context as it is: nothing quantizes it" and "kvc.expand_mla" in miss.at


# ---- elide_requantize --------------------------------------------------------------------------------------------

QUERIES = "%16: u8[T, 3, 16] = kvc.quantize_fp8(%0, %6)\n%17: u8[T, 3, 16] = kvc.quantize_fp8(%1, %6)"
EXPANDED = "%14: u8[T, 3, 32], %15: u8[T, 3, 16] = kvc.expand_mla(%2, %3, %9, %10, none, %7, %8)"
ATTEND_CODES = f"%18: bf16[T, 3, 16], %19: f32[T, 3] = kvc.mla_context(%16, %17, %14, %15, {REST}) {{{HOW}}}"
QUANTIZED = text(EXPANDED, QUERIES, ATTEND_CODES, "return out=%18")


def test_attention_encodes_the_queries_itself() -> None:
    marked = LATENT.replace("input.q_nope", "input.q_nope {accepts=[e4m3]}")
    marked = marked.replace("input.q_rope", "input.q_rope {accepts=[e4m3]}")
    result = check_rewrite(ElideRequantize(), QUANTIZED, text(FUSED, placeholders=marked), fired=4)
    assert result.detail == "2 elided, 2 taking codes"


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (
            QUANTIZED.replace("quantize_fp8(%0, %6)", "quantize_fp8(%0, %7)"),
            "gate scale: q_scale: encoded under scale.context_k, read under scale.context_q",
        ),
        (QUANTIZED.replace("bf16", "f16"), "gate activation dtype: activations are f16, not bf16 or f32"),
        (
            QUANTIZED.replace("%0: bf16", "%0: f32"),
            "gate activation dtype: the value is f32, the weights are bf16",
        ),
    ],
)
def test_queries_that_stay_quantized(before: str, reason: str) -> None:
    result = ElideRequantize().run(program_of(before))
    assert reason in [miss.reason for miss in result.misses]
    (graph,) = result.program.graphs.values()
    assert "kvc.quantize_fp8(%0" in print_graph(graph)


ROWS = LATENT + "  %14: i32[T] = prologue.rows_0\n"
STORE = "{encoding=fp8, keep_k=false, layout=none, tokens_per_page=16}"
STORED = f"%15: bf16[0, 1, 16], %16: bf16[0, 1, 16] = kvc.append_mla(%4, none, %2, %3, none, none, %14, %5, %5) {STORE}"


def test_a_latent_that_is_only_stored_may_be_codes() -> None:
    marked = ROWS.replace("input.latent", "input.latent {accepts=[e4m3]}")
    lines = (STORED, "return out=%0")
    check_rewrite(ElideRequantize(), text(*lines, placeholders=ROWS), text(*lines, placeholders=marked), fired=1)


def test_a_latent_that_is_stored_in_bf16_may_not() -> None:
    stored = STORED.replace("%5, %5", "none, none").replace("encoding=fp8", "encoding=bf16")
    before = text(stored, "return out=%0", placeholders=ROWS.replace("768", "1536"))
    check_rewrite(ElideRequantize(), before, before, fired=0)


def test_a_latent_that_is_expanded_too_may_not() -> None:
    before = text(STORED, EXPAND.replace("%15", "%18").replace("%14", "%17"), "return out=%17", placeholders=ROWS)
    result = check_rewrite(ElideRequantize(), before, before, fired=0)
    assert result.notes == ("mla0.context: kvc.expand_mla needs input.latent as values, so it may not be codes",)
    reasons = {miss.reason for miss in ElideRequantize().nearest(program_of(before))}
    assert "takes input.latent as bf16" in reasons


# ---- assign_layouts ----------------------------------------------------------------------------------------------

TRANSPOSED = text(f"""
    %14: u8[T, 3, 32], %15: u8[3, 16, T + 16*B] = kvc.expand_mla(%2, %3, %9, %10, %12, %7, %8) {{v_layout=transposed}}
    %16: bf16[T, 3, 16], %17: f32[T, 3] = kvc.mla_context(%0, %1, %14, %15, {REST}) {{{HOW}, v_layout=transposed}}
    return out=%16
""")


def laid_out(before: str, arch: str | None = "sm_90") -> tuple[str, list[str], int]:
    """The text after the pass, the reasons of misses, and how often it fired."""
    result = AssignLayouts().run(program_of(before, device="cuda" if arch else "cpu", arch=arch))
    (graph,) = result.program.graphs.values()
    return print_graph(graph), [miss.reason for miss in result.misses], result.fired


def test_v_is_transposed_where_kernels_want_it() -> None:
    assert laid_out(text(FUSED)) == (TRANSPOSED, [], 1)
    assert laid_out(TRANSPOSED) == (TRANSPOSED, [], 0)


@pytest.mark.parametrize(("arch", "place"), [(None, "cpu"), ("sm_80", "cuda sm_80")])
def test_v_stays_where_no_kernel_wants_it_otherwise(arch: str | None, place: str) -> None:
    assert laid_out(text(FUSED), arch) == (text(FUSED), [], 0)
    program = program_of(text(FUSED), device="cuda" if arch else "cpu", arch=arch)
    (miss,) = AssignLayouts().nearest(program)
    assert miss.reason == f"no kernel on {place} wants V in another layout"


KEPT = {
    "V is kvc.quantize_fp8, not a result of kvc.expand_mla": UNFUSED,
    "V is made in the activation dtype and quantized by the attention": text(
        EXPAND, ATTEND.replace("%16, %17", "%14, %15").replace("%18", "%16").replace("%19", "%17"), "return out=%16"
    ),
    "V in rows is used by the output too": text(FUSED).replace("out=%16", "out=%16, v=%15"),
    "gate head dims: V has 24 values a head, no multiple of 16": text(FUSED)
    .replace("bf16[3, 32, 16] = weight", "bf16[3, 32, 24] = weight")
    .replace("%15: u8[T, 3, 16]", "%15: u8[T, 3, 24]")
    .replace("%16: bf16[T, 3, 16]", "%16: bf16[T, 3, 24]"),
}


@pytest.mark.parametrize("reason", KEPT)
def test_v_that_stays_in_rows(reason: str) -> None:
    assert laid_out(KEPT[reason]) == (KEPT[reason], [reason], 0)


# ---- the verifier ------------------------------------------------------------------------------------------------


def test_codes_that_are_read_under_another_scale() -> None:
    graph = parse_graph(text(FUSED).replace("none, %7, %8)", "none, %8, %7)"))
    messages = [one.message for one in found(verify_graph, graph, Stage.FUSED, phase="context") if one.code == "KVC328"]
    assert messages == [
        "after parsing, mla0.context: reads k under scale.context_k; it is encoded under scale.context_v",
        "after parsing, mla0.context: reads v under scale.context_v; it is encoded under scale.context_k",
    ]


def test_an_input_that_no_call_takes_as_codes() -> None:
    graph = parse_graph(text(FUSED))
    next(node for node in graph.placeholders if node.target == "latent").meta["accepts"] = ("e4m3",)
    (one,) = found(verify_graph, graph, Stage.FUSED, phase="context")
    assert one.code == "KVC324" and "kvc.expand_mla" in one.help
    assert "an input may hold codes: " in one.message and "latent" in one.message


def test_what_the_passes_make_is_legal() -> None:
    for legal in (UNFUSED, text(FUSED), TRANSPOSED, QUANTIZED):
        verify_graph(parse_graph(legal), Stage.FUSED, phase="context")
    assert node_of(parse_graph(TRANSPOSED), "kvc.expand_mla").kwargs == {"v_layout": "transposed"}
