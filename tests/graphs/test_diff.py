"""Graph differences name what changed and nothing else."""

from kvc.graphs.diff import diff_graphs, readable_lines
from kvc.graphs.text import parse_graph

BEFORE = """\
graph g.generation
  %0: f32[T, 4] = input.x
  %1: f32[T, 4] = aten.neg(%0)  # a.yaml:1
  %2: f32[T, 4] = aten.exp(%1)  # a.yaml:1
  %3: f32[T, 4] = aten.neg(%2)  # a.yaml:1
  return out=%3
"""
INSERTED = """\
graph other.generation
  %0: f32[T, 4] = input.x
  %1: f32[T, 4] = aten.neg(%0)  # b.yaml:7
  %2: f32[T, 4] = aten.abs(%1)  # b.yaml:7
  %3: f32[T, 4] = aten.exp(%1)  # b.yaml:7
  %4: f32[T, 4] = aten.neg(%3)  # b.yaml:7
  return out=%4
"""


def test_names_and_provenance_are_no_difference():
    other = parse_graph(BEFORE.replace("g.generation", "h.context").replace("a.yaml:1", "b.yaml:2"))
    assert diff_graphs("g", parse_graph(BEFORE), other) is None


def test_an_inserted_value_is_one_line():
    found = diff_graphs("g", parse_graph(BEFORE), parse_graph(INSERTED))
    assert found.change == "changed"
    assert [line for line in found.lines if line[0] in "+-"] == [found.first]
    assert found.first == "+abs.0: f32[T, 4] = aten.abs(neg.0)"


def test_rewiring_is_seen():
    rewired = parse_graph(BEFORE.replace("aten.exp(%1)", "aten.exp(%0)"))
    found = diff_graphs("g", parse_graph(BEFORE), rewired)
    assert found.first == "-exp.0: f32[T, 4] = aten.exp(neg.0)"


def test_a_missing_side_is_added_or_removed():
    graph = parse_graph(BEFORE)
    assert diff_graphs("g", None, graph).change == "added"
    assert diff_graphs("g", graph, None).change == "removed"
    assert diff_graphs("g", None, None) is None


def test_readable_lines_name_values_after_their_makers():
    assert readable_lines(parse_graph(BEFORE))[1:] == [
        "neg.0: f32[T, 4] = aten.neg(input.x)",
        "exp.0: f32[T, 4] = aten.exp(neg.0)",
        "neg#2.0: f32[T, 4] = aten.neg(exp.0)",
        "return out=neg#2.0",
    ]
