"""Bad calls: the error names op, argument and axis, and nothing is written."""

import pytest
import torch
from mla_bad_calls import CASES as MLA_CASES
from sparse_bad_calls import CASES as SPARSE_CASES
from twin_bad_calls import CASES as TWIN_CASES

from kvc.diagnostic_codes import CODES
from kvc.diagnostics import KvcError
from kvc.ops import OPS
from kvc.ops.example_inputs import Shape

# op, index or name of the argument, what to make of it, code, words of the message
CASES = [
    ("rope", 2, lambda t: t[:-1], "KVC551", "kvc::rope: positions: axis T is 5, expected 6"),
    ("rope", 1, lambda t: t[:, :31], "KVC551", "kvc::rope: table: axis R is 31, expected an even number up to D = 32"),
    ("rope", 1, lambda t: torch.cat((t, t), 1), "KVC551", "axis R is 64"),
    ("rope", 1, lambda t: t.double(), "KVC551", "kvc::rope: table: dtype is float64, expected float32"),
    ("rope", 0, lambda t: t[0], "KVC551", "kvc::rope: x: has 2 axes, expected [T H D]"),
    ("rope", 2, lambda t: t + 99, "KVC552", "kvc::rope: positions[0] is 104, expected 0 <= value < 40"),
    ("rope", 2, lambda t: t - 9, "KVC552", "positions[0] is -4"),
    ("rope", "layout", lambda _: "neox", "KVC554", "layout 'neox' is not known"),
    ("rope", 0, lambda t: t.to("meta"), "KVC551", "table: is on cpu, the operands before it on meta"),
    ("rope_quantize", 3, lambda _: None, "KVC551", "kvc::rope_quantize: scale: is missing: fp8 needs a scale"),
    ("rope_quantize", "encoding", lambda _: "bf16", "KVC551", "scale: is given: bf16 takes no scale"),
    ("rope_quantize", "encoding", lambda _: "fp9", "KVC554", "codec 'fp9' is not known"),
    ("quantize_fp8", 0, lambda t: t.int(), "KVC551", "x: dtype is int32, expected bfloat16 or float16 or float32"),
    ("quantize_fp8", 0, lambda t: t.sum(), "KVC551", "x: has 0 axes, expected [... X]"),
    ("quantize_fp8", 1, lambda t: t[:1], "KVC551", "kvc::quantize_fp8: scale: axis 2 is 1, expected 2"),
    ("quantize_bf16", 1, lambda _: torch.ones(2), "KVC551", "scale: is given: bf16 takes no scale"),
    ("dequantize_bf16", 0, lambda t: t[..., :63], "KVC551", "data: axis X is 63, expected whole values of 16 bits"),
    ("dequantize_fp8", "dtype", lambda _: torch.float64, "KVC551", "dtype: is torch.float64"),
    ("store_rows", 0, lambda t: t[:, :-16], "KVC551", "pool: axis page_bytes is 2032, expected 2048: 16 tokens a page"),
    ("store_rows", 1, lambda planes: planes[:1], "KVC551", "pool: axis page_bytes is 2048, expected 1024"),
    ("store_rows", 1, lambda planes: [], "KVC551", "planes: is empty"),
    ("store_rows", 1, lambda p: [p[0], p[1][:-1]], "KVC551", "kvc::store_rows: planes[1]: axis T is 5, expected 6"),
    ("store_rows", 1, lambda p: [p[0], p[1].view(torch.int8)], "KVC551", "planes[1]: dtype is int8, expected uint8"),
    ("store_rows", "tokens_per_page", lambda _: 0, "KVC551", "tokens_per_page: is 0, expected 1 or more"),
    ("store_rows", 2, lambda t: t * 0 + 7, "KVC553", "rows: write row 7 is given 6 times"),
    ("store_rows", 2, lambda t: t - 2000, "KVC552", "kvc::store_rows: rows[0] is"),
    ("store_rows", 2, lambda t: t + 2000, "KVC552", "expected -1 <= value < 128"),
    ("store_rows", 0, lambda t: t.t().contiguous().t(), "KVC551", "pool: axis page_bytes has stride 8, expected 1"),
    ("store_rows", 0, lambda t: t[:1].expand(t.shape), "KVC551", "axis P has stride 0: pages of 2048 bytes overlap"),
    ("gather_rows", 1, lambda t: t + 99, "KVC552", "kvc::gather_rows: page_table[0, 0] is"),
    ("gather_rows", 2, lambda t: t + 99, "KVC552", "kvc::gather_rows: lengths[0] is 106, expected 0 <= value < 65"),
    ("gather_rows", 2, lambda t: t[:2], "KVC551", "kvc::gather_rows: lengths: axis B is 2, expected 3"),
    ("gather_rows", 3, lambda s: [s[0], None], "KVC551", "kvc::gather_rows: scales[1]: is missing"),
    ("gather_rows", "heads", lambda _: [2], "KVC551", "fields: differ in number: fields 2, heads 1, dims 2, scales 2"),
    ("gather_rows", "dims", lambda _: [32, 16], "KVC551", "pool: axis page_bytes is 2048, expected 1536"),
    ("gather_rows", "dtype", lambda _: torch.int32, "KVC551", "kvc::gather_rows: dtype: is torch.int32"),
    ("append_gqa", 2, lambda t: t[..., :16], "KVC551", "kvc::append_gqa: k: axis D is 16, expected 32"),
    ("append_gqa", 3, lambda t: t[:, :1], "KVC551", "kvc::append_gqa: v: axis Hk is 1, expected 2"),
    ("append_gqa", 5, lambda t: t + 99, "KVC552", "kvc::append_gqa: positions[0] is"),
    ("append_gqa", 6, lambda t: t * 0, "KVC553", "kvc::append_gqa: rows: write row 0 is given 6 times"),
    ("append_gqa", 5, lambda _: None, "KVC551", "kvc::append_gqa: positions: go with table: give both or neither"),
    (
        "append_gqa",
        "layout",
        lambda _: None,
        "KVC551",
        "kvc::append_gqa: layout: goes with table: give both or neither",
    ),
    ("append_gqa", "layout", lambda _: "neox", "KVC554", "kvc::append_gqa: layout 'neox' is not known"),
    ("append_gqa", 8, lambda _: None, "KVC551", "kvc::append_gqa: v_scale: is missing"),
    ("append_gqa", "tokens_per_page", lambda _: 32, "KVC551", "axis page_bytes is 2048, expected 4096"),
    ("append_gqa", "tokens_per_page", lambda _: -1, "KVC551", "tokens_per_page: is -1"),
    ("gqa_context", 0, lambda t: t[:, :3], "KVC551", "q: axis H is 3, expected a multiple of the 2 KV heads"),
    ("gqa_context", 6, lambda t: t[:-1], "KVC551", "query_starts: axis B+1 is 3, expected 4"),
    ("gqa_context", 6, lambda t: t + 1, "KVC552", "query_starts is [1, 3, 5, 7], expected 0 <= ... <= 6"),
    ("gqa_context", 6, lambda t: t.flip(0) - 6, "KVC552", "query_starts"),
    ("gqa_context", 5, lambda t: t - 1, "KVC552", "kvc::gqa_context: committed[1] is -1"),
    ("gqa_context", 4, lambda t: t + 9, "KVC552", "kvc::gqa_context: page_table"),
    ("gqa_decode", 0, lambda t: t[:-1], "KVC551", "q: axis T is 5, expected a multiple of the 3 sequences"),
    ("gqa_decode", "kv_heads", lambda _: 3, "KVC551", "q: axis H is 4, expected a multiple of the 3 KV heads"),
    ("gqa_decode", 3, lambda t: t + 60, "KVC552", "kvc::gqa_decode: lengths[0] is 67"),
    ("gqa_decode", 2, lambda t: t - 9, "KVC552", "kvc::gqa_decode: page_table"),
    ("merge_states", 1, lambda t: t[:, :, :1], "KVC551", "kvc::merge_states: lse: axis H is 1, expected 4"),
    ("copy_page_tables", "offsets", lambda _: [0], "KVC551", "lifecycles: has 3 entries, pages_per_slot 3, offsets 1"),
    ("copy_page_tables", "lifecycles", lambda _: [0, 2, 0], "KVC551", "lifecycles: is [0, 2, 0], axis G has 2"),
    ("copy_page_tables", "offsets", lambda _: [0, 1, 2], "KVC551", "offsets: is [0, 1, 2]"),
    ("copy_page_tables", 0, lambda t: t + 2**30, "KVC552", "kvc::copy_page_tables: slot_tables[0, 0, 0] is"),
    ("copy_page_tables", 0, lambda t: t - 99, "KVC552", "expected -1 <= value"),
    ("correct_lengths", 1, lambda t: t[1:], "KVC551", "kvc::correct_lengths: scheduled: axis B is 2, expected 3"),
    ("correct_lengths", 2, lambda t: t + 1, "KVC552", "kvc::correct_lengths: accepted_rows[0] is 3"),
    ("correct_lengths", 1, lambda t: t - 2, "KVC552", "accepted[0] is 2, expected 0 <= value <= 1"),
    ("correct_lengths", 1, lambda t: t - 9, "KVC552", "kvc::correct_lengths: scheduled[0] is -6"),
    ("correct_lengths", 0, lambda t: t - 9, "KVC552", "expected 0 <= value <= committed[0] = "),
    ("step_positions", 2, lambda t: t + 2, "KVC552", "kvc::step_positions: sequence_ids[2] is 3"),
    ("step_positions", 1, lambda t: t[1:], "KVC551", "query_starts: axis B+1 is 3, expected 4"),
    ("write_rows", 1, lambda t: t + 60, "KVC552", "kvc::write_rows: positions[0] is 65, expected 0 <= value < 64"),
    ("write_rows", 1, lambda t: t - 6, "KVC552", "kvc::write_rows: positions[0] is -1"),
    ("write_rows", 2, lambda t: t + 1, "KVC552", "kvc::write_rows: sequence_ids[4] is 3"),
    ("write_rows", "tokens_per_page", lambda _: 0, "KVC551", "tokens_per_page: is 0"),
    ("write_rows", "tokens_per_page", lambda _: 2**31, "KVC551", "tokens_per_page: is 2147483648"),
    ("write_rows", 0, lambda t: t + 2**27, "KVC552", "expected -1 <= value < 134217728"),
    *MLA_CASES,
    *TWIN_CASES,
    *SPARSE_CASES,
]


@pytest.mark.parametrize(("name", "argument", "change", "code", "words"), CASES)
def test_bad_call(name, argument, change, code, words):
    args, kwargs = OPS[name].example(Shape())
    args = list(args)
    if isinstance(argument, int):
        args[argument] = change(args[argument])
    else:
        kwargs[argument] = change(kwargs[argument])
    before = [tensor.clone() for tensor in tensors_of(args)]
    with pytest.raises(KvcError) as caught:
        OPS[name].overload(*args, **kwargs)
    (found,) = caught.value.diagnostics
    assert found.code == code and found.code in CODES
    assert words in found.message and f"kvc::{name}" in found.message
    for after, was in zip(tensors_of(args), before, strict=True):
        assert after.is_meta or torch.equal(after.contiguous().view(torch.uint8), was.contiguous().view(torch.uint8))


def tensors_of(args):
    """The tensors of a call with at least one axis, lists opened."""
    opened = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
    return [item for item in opened if isinstance(item, torch.Tensor) and item.ndim]


def test_every_op_has_a_bad_call():
    assert {case[0] for case in CASES} | {"quantize_fp32", "dequantize_fp32"} == set(OPS)
