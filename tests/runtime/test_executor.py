"""Graphs of plain torch ops: values, tensor lists, several results, lifetimes."""

import gc
import weakref

import pytest
import torch

from kvc.diagnostics import KvcError
from kvc.graphs.builder import GraphBuilder
from kvc.runtime.executor import Executor


def build(body):
    b = GraphBuilder("test")
    x = b.placeholder("input", "x", torch.float32, ("T", 4))
    w = b.placeholder("weight", "w", torch.float32, ("T", 4))
    return Executor(b.finish(body(b, x, w)))


def inputs():
    return {"input.x": torch.arange(8.0).view(2, 4), "weight.w": torch.full((2, 4), 2.0)}


def test_values_by_qualified_name():
    run = build(lambda b, x, w: {"out": b.call("aten.mul.Tensor", x, w), "x": x})
    given = inputs()
    out = run.run({**given, "step.unused": torch.ones(1)})
    assert torch.equal(out["out"], given["input.x"] * 2)
    assert out["x"] is given["input.x"]


def test_tensor_lists_and_attributes():
    run = build(lambda b, x, w: {"out": b.call("aten.cat", [x, w], dim=1)})
    assert run.run(inputs())["out"].shape == (2, 8)


def test_several_results():
    def body(b, x, w):
        values, order = b.call("aten.topk", x, k=2)
        return {"values": values, "order": order}

    out = build(body).run(inputs())
    assert out["values"].tolist() == [[3.0, 2.0], [7.0, 6.0]]
    assert out["order"].tolist() == [[3, 2], [3, 2]]


def test_runs_are_independent():
    run = build(lambda b, x, w: {"out": b.call("aten.add.Tensor", x, w)})
    first = run.run(inputs())["out"]
    second = run.run({**inputs(), "weight.w": torch.zeros(2, 4)})["out"]
    assert not torch.equal(first, second)


def test_a_missing_input_is_named():
    run = build(lambda b, x, w: {"out": b.call("aten.add.Tensor", x, w)})
    with pytest.raises(KvcError, match=r"KVC506.*weight\.w"):
        run.run({"input.x": torch.ones(2, 4)})


def test_values_are_dropped_after_their_last_use(monkeypatch):
    monkeypatch.setattr("kvc.graphs.graph.NAMESPACES", ("kvc_test_lifetimes",))
    alive, seen = [], []
    library = torch.library.Library("kvc_test_lifetimes", "DEF")
    library.define("note(Tensor x) -> Tensor")

    def note(x):
        gc.collect()
        seen.append(sum(ref() is not None for ref in alive))
        out = x + 1
        alive.append(weakref.ref(out))
        return out

    library.impl("note", note, "CPU")
    library.impl("note", torch.empty_like, "Meta")

    def body(b, x, w):
        for _ in range(5):
            x = b.call("kvc_test_lifetimes.note", x)
        return {"out": x}

    build(body).run(inputs())
    assert seen == [0, 1, 1, 1, 1]
