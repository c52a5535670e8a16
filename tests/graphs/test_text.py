"""Canonical text: what is printed parses back to the same graph, and broken text is named by line."""

import pytest
import torch

from kvc.diagnostics import KvcError
from kvc.graphs.builder import GraphBuilder
from kvc.graphs.diff import readable_lines
from kvc.graphs.graph import Graph
from kvc.graphs.text import parse_graph, print_graph

TEXT = """\
graph demo.generation
  %0: bf16[T, 32, 128] = input.x
  %1: i32[B + 1] = step.query_starts
  %2: bf16[T, 32, 128] = aten.add.Tensor(%0, %0) @reference  # demo.yaml:3
  %3: bf16[1, 32, 128], %4: i64[1, 32, 128] = aten.max.dim(%2) {dim=0, keepdim=true}  # demo.yaml:3
  %5: bf16[T, 64, 128] = aten.cat([%0, %2]) {dim=1}
  %6: i32[] = aten.select.int(%1) {dim=0, index=0}
  %7: bf16[T, 32, 128] = aten.clamp(%0) {max=0.5, min=-1e-05}
  return out=%5, largest=%3, first=%6
"""


def build() -> Graph:
    b = GraphBuilder("demo.generation")
    x = b.placeholder("input", "x", torch.bfloat16, ("T", 32, 128))
    starts = b.placeholder("step", "query_starts", torch.int32, ("B + 1",))
    doubled = b.call("aten.add.Tensor", x, x, source="demo.yaml:3")
    doubled.meta["kernel"] = "reference"
    largest, _ = b.call("aten.max.dim", doubled, source="demo.yaml:3", dim=0, keepdim=True)
    both = b.call("aten.cat", [x, doubled], dim=1)
    first = b.call("aten.select.int", starts, dim=0, index=0)
    return b.finish({"out": both, "largest": largest, "first": first})


def test_prints_one_statement_a_line():
    printed = print_graph(build())
    assert printed == "".join(line for line in TEXT.splitlines(keepends=True) if "clamp" not in line)


def test_text_is_a_fixed_point_of_print_and_parse():
    assert print_graph(parse_graph(TEXT)) == TEXT


def test_provenance_is_left_out_of_comparisons():
    assert "#" not in print_graph(build(), comments=False)


def test_copy_is_independent():
    graph = build()
    copy = graph.copy()
    copy.calls[0].kwargs = {"alpha": 2}
    copy.placeholders[0].target = "renamed"
    assert print_graph(graph) == print_graph(build())
    assert print_graph(copy) != print_graph(graph)


@pytest.mark.parametrize(
    ("change", "line", "code", "message"),
    [
        (lambda t: "", 1, "KVC302", "empty"),
        (lambda t: t.replace("graph demo", "grph demo"), 1, "KVC302", "expected 'graph NAME'"),
        (lambda t: t.rsplit("  return", 1)[0], 8, "KVC302", "cut off"),
        (lambda t: t.replace("input.x", "inptu.x"), 2, "KVC302", "role"),
        (lambda t: t.replace("bf16[T, 32, 128] = input", "b16[T, 32, 128] = input"), 2, "KVC302", "known dtype"),
        (lambda t: t.replace("(%0, %0)", "(%0, %9)"), 4, "KVC302", "%9 is not a value"),
        (lambda t: t.replace("aten.cat", "aten.dog"), 6, "KVC302", "no op aten.dog"),
        (lambda t: t.replace("%5: bf16[T, 64,", "%5: bf16[T, 65,"), 6, "KVC303", "but is bf16[T, 64, 128]"),
        (lambda t: t.replace(", %4: i64[1, 32, 128]", ""), 5, "KVC303", "2 results"),
        (lambda t: t.replace("[%0, %2]) {dim=1}", "[%0, %1]) {dim=1}"), 6, "KVC301", "refuses"),
        (lambda t: t.replace("index=0}", "index=}"), 7, "KVC302", "not attributes"),
        (lambda t: t.replace("first=%6", "first=%66"), 9, "KVC302", "%66"),
        (lambda t: t.replace("first=%6", "%6"), 9, "KVC302", "not an output"),
        (lambda t: t.replace("first=%6", "out=%6"), 9, "KVC302", "not an output"),
        (lambda t: t + "\n  %8: i32[B + 1] = step.query_starts\n", 11, "KVC302", "follow the return line"),
        (lambda t: t.replace("%7: bf16", "%2: bf16"), 8, "KVC302", "%2 is defined twice"),
        (lambda t: t.replace("%1: i32[B + 1]", "%0: i32[B + 1]"), 3, "KVC302", "%0 is defined twice"),
        (lambda t: t.replace("(%0, %0)", "(%0, %0], %1)"), 4, "KVC302", "not open"),
        (lambda t: t.replace("{dim=1}", "{dim=1, dim=0}"), 6, "KVC302", "given twice"),
        (lambda t: t.replace("first=%6", "first=%²"), 9, "KVC302", "not a value defined above"),
        (lambda t: t.replace("first=%6", "first=%" + "6" * 5000), 9, "KVC302", "not a value defined above"),
        (lambda t: t.replace("T, 32, 128] = input", f"{'T + ' * 9999}T] = input"), 2, "KVC302", "not a size"),
        (lambda t: t.replace("T, 32, 128] = input", f"{'T*' * 40}T] = input"), 2, "KVC302", "no tensor has the shape"),
        (lambda t: t.replace("T, 32, 128] = input", f"{'9' * 30}] = input"), 2, "KVC302", "no tensor has the shape"),
        (lambda t: t.replace("T, 32, 128] = input", "True] = input"), 2, "KVC302", "not a size"),
        (lambda t: t.replace("T, 32, 128] = input", "T T] = input"), 2, "KVC302", "not a shape: [T T]"),
        (lambda t: t.replace("[%0, %2])", "[%0, %2)"), 6, "KVC302", "not closed"),
        (lambda t: t.replace("min=-1e-05", "min=torch.f31"), 8, "KVC302", "not an attribute: torch.f31"),
        (lambda t: t.replace("min=-1e-05", "min=/etc"), 8, "KVC302", "not an attribute: /etc"),
        (
            lambda t: t.replace(
                "%6: i32[] = aten.select.int(%1) {dim=0, index=0}", "%6: i64[] = aten.sym_size.int(%1) {dim=0}"
            ),
            7,
            "KVC303",
            "no tensor",
        ),
    ],
)
def test_broken_text_is_named_by_line(change, line, code, message):
    with pytest.raises(KvcError) as caught:
        parse_graph(change(TEXT), "demo.txt")
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert message in found.message
    assert (found.source.path, found.source.line) == ("demo.txt", line)


@pytest.mark.parametrize(
    "call",
    [
        "load_library.__call__.__call__() {path=lib}",
        "aten.from_file() {filename=made, shared=true, size=4}",
        "aten.__class__.__name__(%0)",
        "aten.ones() {size=[4]}",
        "kvc.rope.default.more(%0)",
    ],
)
def test_text_reaches_ops_on_tensors_alone(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KvcError, match="KVC302 there is no op"):
        parse_graph(f"graph g\n  %0: f32[4] = input.x\n  %1: f32[4] = {call}\n  return y=%1\n")
    assert not list(tmp_path.iterdir())


def test_numbers_of_any_size_are_told_from_names():
    text = "graph g\n  %0: u8[P, 4194304] = pool.kv\n  %1: i32[P - 1, 1400016] = step.rows\n  return y=%0\n"
    assert print_graph(parse_graph(text)) == text


def test_a_dimension_is_never_specialised():
    b = GraphBuilder("g")
    x = b.placeholder("input", "x", torch.float32, ("T", 4))
    y = b.placeholder("input", "y", torch.float32, ("B", 4))
    with pytest.raises(KvcError, match=r"KVC301.*length B at.*\[T, 4\]"):
        b.call("aten.add.Tensor", x, y)


@pytest.mark.parametrize("page_bytes", [500_000, 524_288, 2**20, 2**26])
def test_pages_of_any_size_are_printed_as_numbers(page_bytes):
    """A page of 1,024 tokens has more bytes than the numbers that stand for dimensions."""
    b = GraphBuilder("g")
    pool = b.placeholder("pool", "history", torch.uint8, ("P", page_bytes))
    text = print_graph(b.finish({"out": b.call("aten.clone", pool)}))
    assert f"%1: u8[P, {page_bytes}] = aten.clone(%0)" in text
    assert print_graph(parse_graph(text)) == text


def test_more_dimensions_than_can_be_told_apart_are_refused():
    b = GraphBuilder("g")
    with pytest.raises(ValueError, match="D12 is one dimension too many"):
        b.placeholder("input", "x", torch.float32, tuple(f"D{i}" for i in range(13)))


@pytest.mark.parametrize("value", ["none", "inf", "nan", "Infinity", "torch.f32", "a b", "", "3"])
def test_attributes_without_a_text_form_are_refused(value):
    """Strings that would be read back as something else."""
    b = GraphBuilder("g")
    x = b.placeholder("input", "x", torch.float32, ("T", 4))
    y = b.call("aten.gelu", x, approximate="none")
    y.kwargs = {"approximate": value}
    with pytest.raises(ValueError, match="no text form"):
        print_graph(b.finish({"out": y}))


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e+300"])
def test_numbers_that_look_like_names(number):
    text = f"graph g\n  %0: f32[T] = input.x\n  %1: f32[T] = aten.clamp(%0) {{max={number}}}\n  return y=%1\n"
    assert print_graph(parse_graph(text)) == text


def test_sums_of_dimensions():
    text = (
        "graph g\n  %0: u8[3, 16, T + 16*B] = input.v\n  %1: i32[B + T] = step.a\n  %2: i32[T + 64*W] = step.b\n"
        "  %3: u8[3, 16, T + 16*B] = aten.neg(%0)\n  return y=%3\n"
    )
    graph = parse_graph(text)
    assert print_graph(graph).replace("T + B", "B + T") == text
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    shape = graph.placeholders[0].meta["val"].shape
    assert [graph.symbols.number(size, {"T": 100, "B": 3, "W": 1}) for size in shape] == [3, 16, 148]


def test_a_sum_of_what_the_graph_does_not_name_is_no_sum():
    text = "graph g\n  %0: i32[T] = step.a\n  return y=%0\n"
    symbols = parse_graph(text).symbols
    assert symbols.size_text(symbols.size("T") * 65 + 7) == f"?{symbols.size('T') * 65 + 7}"


def test_inputs_that_may_be_codes():
    text = "graph g\n  %0: bf16[T, 8] = input.v {accepts=[e4m3]}\n  %1: bf16[T, 8] = aten.neg(%0)\n  return y=%1\n"
    graph = parse_graph(text)
    assert graph.placeholders[0].meta["accepts"] == ("e4m3",)
    assert print_graph(graph) == print_graph(graph.copy()) == text
    assert readable_lines(graph)[:2] == [
        "input.v: bf16[T, 8] = input.v {accepts=[e4m3]}".replace(" = input.v", "", 1),
        "neg.0: bf16[T, 8] = aten.neg(input.v)",
    ]


@pytest.mark.parametrize(
    "attributes",
    ["accepts=[e5m2]", "accepts=e4m3", "accepts=[]", "accepts=[e4m3, e4m3]", "takes=[e4m3]", "accepts=[e4m3], a=1", ""],
)
def test_other_attributes_of_placeholders_are_refused(attributes):
    text = f"graph g\n  %0: bf16[T, 8] = input.v {{{attributes}}}\n  return y=%0\n"
    with pytest.raises(KvcError, match=r"demo.txt:2.* KVC302"):
        parse_graph(text, "demo.txt")


def test_a_pool_takes_no_codes():
    text = "graph g\n  %0: u8[P, 8] = pool.history {accepts=[e4m3]}\n  return y=%0\n"
    with pytest.raises(KvcError, match="not attributes of a placeholder"):
        parse_graph(text)
