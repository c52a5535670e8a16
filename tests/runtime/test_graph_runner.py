"""The capture contract, one negative test a clause, and replay == eager bit for bit; on a GPU with CUDA graphs."""

import pytest
import torch
from torch.nn import functional

from kvc.diagnostics import KvcError
from kvc.runtime.graph_runner import GraphRunner


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    with torch.device(request.param):
        yield request.param


def randn(*shape, seed=0):
    made = torch.randn(*shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return made.to(torch.get_default_device())


@pytest.fixture
def x():
    return randn(4, 8)


@pytest.fixture
def w():
    return randn(8, 8, seed=1)


def refused(fn, **registered):
    with pytest.raises(KvcError) as caught:
        GraphRunner().capture(4, fn, static={}, copied=registered)
    return caught.value.diagnostics[0]


def check_replays(fn, static, copied):
    """Capture once, replay with three new values; every output and static tensor equals a fresh eager run's."""
    start = {name: tensor.clone() for name, tensor in static.items()}
    runner = GraphRunner()
    runner.capture(1, fn, static, copied)
    for seed in range(3):
        values = {name: randn(*tensor.shape, seed=seed + 10).to(tensor.dtype) for name, tensor in copied.items()}
        for name, tensor in static.items():
            tensor.copy_(start[name])
        replayed = [out.clone() for out in runner.replay(1, values)]
        after = {name: tensor.clone() for name, tensor in static.items()}
        for name, tensor in static.items():
            tensor.copy_(start[name])
        for name, tensor in copied.items():
            tensor.copy_(values[name])
        for out, eager in zip(replayed, fn(), strict=True):
            assert torch.equal(out, eager)
        for name, tensor in static.items():
            assert torch.equal(after[name], tensor)
    return runner


def test_linear_and_softmax(x, w):
    check_replays(lambda: [functional.softmax(functional.linear(x, w) * 0.5, -1)], {"w": w}, {"x": x})


def test_attention(x, w):
    def attention():
        q = x.view(1, 2, 4, 4)
        return [functional.scaled_dot_product_attention(q, q, q, is_causal=True)]

    check_replays(attention, {}, {"x": x})


def test_views_are_not_run_again(x):
    runner = check_replays(lambda: [x.t()[2:5].reshape(3, 4)[:, :2], x.view(-1)[3:]], {}, {"x": x})
    assert not any("view" in op or "slice" in op or "aten.t." in op for op in runner.ops(1))


def test_in_place_ops_on_static_and_derived_memory(x, w):
    def update():
        w.narrow(0, 2, 4).add_(x)
        y = x + 1
        y[0] = 0
        y.mul_(w[:4])
        return [y, torch.add(y, y, out=torch.empty_like(y))]

    check_replays(update, {"w": w}, {"x": x})


def test_indices_of_fixed_shape(x):
    """Integers gather as many rows as there are; a mask as many as are set."""
    rows, base = torch.tensor([2, 0, 2]), torch.arange(4)

    def gather():
        y = x.clone()
        y[rows] = x.new_zeros(())
        return [x[rows], x[rows, rows.int()], x[:, rows], x[(base * 3) % 4], y]

    check_replays(gather, {"rows": rows, "base": base}, {"x": x})


def test_multi_output_ops(x):
    check_replays(lambda: [*x.sort(dim=1), *x.split(3, dim=1), *torch.var_mean(x, 1)], {}, {"x": x})


def test_factories_inside_the_graph(x):
    check_replays(lambda: [x + torch.arange(8) + torch.zeros(8), torch.ones(2)], {}, {"x": x})


def test_modules_with_parameters(x):
    block = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
    runner = GraphRunner()
    out = runner.capture("b", lambda: block(x), static=dict(block.named_parameters()), copied={"x": x})
    new = randn(4, 8, seed=5)
    assert runner.replay("b", {"x": new}) is out
    assert torch.equal(out, block(new))
    assert runner.buckets == ("b",)
    assert runner.buffer_bytes("b") >= out.nbytes


def test_output_structure_is_kept(x):
    runner = GraphRunner()
    out = runner.capture(1, lambda: {"a": (x * 2, None), "b": x}, {}, {"x": x})
    runner.replay(1, {"x": torch.ones(4, 8)})
    assert torch.equal(out["a"][0], torch.full((4, 8), 2.0))
    assert out["b"] is x


def test_a_value_that_is_the_registered_tensor_was_filled_in_place(x):
    runner = GraphRunner()
    out = runner.capture(1, lambda: x * 2, {}, {"x": x})
    x.fill_(3)
    assert torch.equal(runner.replay(1, {"x": x}), out)
    assert (out == 6).all()


def test_buckets_do_not_share_buffers():
    runner, inputs = GraphRunner(), {n: randn(n, 8) for n in (1, 2)}
    outs = {n: runner.capture(n, lambda n=n: inputs[n] * 2, {}, {"x": inputs[n]}) for n in (1, 2)}
    first = runner.replay(1, {"x": torch.ones(1, 8)}).clone()
    runner.replay(2, {"x": torch.zeros(2, 8)})
    assert torch.equal(outs[1], first)


# One refusal a clause


def test_unregistered_tensor_names_op_and_argument(x, w):
    found = refused(lambda: x @ w, x=x)
    assert found.code == "KVC520"
    assert "aten::mm" in found.message and "'mat2'" in found.message and "float32[8, 8]" in found.message


def test_unregistered_tensor_in_a_list(x, w):
    found = refused(lambda: torch.cat([x, w]), x=x)
    assert found.code == "KVC520" and "'tensors'" in found.message


def test_unregistered_target_of_a_write(x, w):
    assert refused(lambda: w[:4].copy_(x), x=x).code == "KVC520"


def test_tensor_made_of_host_data(x):
    assert refused(lambda: x + torch.tensor([1.0] * 8), x=x).code == "KVC520"


def test_tensor_made_of_numpy_data(x):
    import numpy as np

    assert refused(lambda: x + torch.from_numpy(np.ones(8, np.float32)), x=x).code == "KVC520"


def test_returning_an_unregistered_tensor(x, w):
    assert refused(lambda: (x * 1, w), x=x).code == "KVC520"


def test_returning_a_number(x):
    assert refused(lambda: (x * 1, 3), x=x).code == "KVC521"


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[0, 0].item(),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.__array__(),
        lambda x: bool(x.sum() > 0),
        lambda x: int(x[0, 0]),
        lambda x: float(x[0, 0]),
        lambda x: [1, 2, 3][x.new_zeros((), dtype=torch.int64)],
        lambda x: torch.equal(x, x),
        lambda x: torch.allclose(x, x),
        lambda x: 1.0 in x,
        lambda x: f"{x}",
        lambda x: repr(x),
        lambda x: x[:, : x.new_ones((), dtype=torch.int64)],
    ],
)
def test_host_reads(read, x):
    assert refused(lambda: read(x), x=x).code == "KVC521"


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(3),
        lambda x: torch.randn_like(x),
        lambda x: x.clone().uniform_(),
        lambda x: torch.multinomial(x.abs(), 1),
        lambda x: functional.dropout(x, 0.5),
        lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.1),
    ],
)
def test_random_numbers(draw, x):
    assert refused(lambda: draw(x), x=x).code == "KVC522"


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x[x > 0],
        lambda x: x[:, (x > 0)[0]],
        lambda x: x[(x > 0).to(torch.uint8)],
        torch.nonzero,
        torch.unique,
        lambda x: x.masked_select(x > 0),
    ],
)
def test_data_dependent_shapes(op, x):
    assert refused(lambda: op(x), x=x).code == "KVC523"


@pytest.mark.parametrize("op", [lambda y: y.t_(), lambda y: y.resize_(2, 2), lambda y: y.squeeze_()])
def test_metadata_changes(op, x):
    assert refused(lambda: op(x + 1), x=x).code == "KVC523"


def test_a_failed_capture_leaves_no_bucket(x, w):
    runner = GraphRunner()
    with pytest.raises(KvcError):
        runner.capture(1, lambda: x @ w, {}, {"x": x})
    assert runner.buckets == ()


def replay_refused(runner, values, bucket=1):
    with pytest.raises(KvcError) as caught:
        runner.replay(bucket, values)
    return caught.value.diagnostics[0]


def test_replay_checks_its_values(x):
    runner = GraphRunner()
    runner.capture(1, lambda: x * 2, {}, {"x": x})
    with pytest.raises(KvcError):
        runner.capture(1, lambda: x * 2, {}, {"x": x})
    assert replay_refused(runner, {}).code == "KVC524"
    assert replay_refused(runner, {"x": x, "y": x}).code == "KVC524"
    assert replay_refused(runner, {"x": torch.ones(4, 7)}).code == "KVC524"
    assert replay_refused(runner, {"x": torch.ones(4, 8).double()}).code == "KVC524"
    assert replay_refused(runner, {"x": x}, bucket=2).code == "KVC525"


def test_values_are_read_before_any_is_copied(x):
    """Whatever the order of the copies: a value may lie in registered memory, even in its own."""
    y = randn(4, 8, seed=1)
    runner = GraphRunner()
    runner.capture(1, lambda: [x * 1, y * 1], {}, {"x": x, "y": y})
    old_x, old_y = x.clone(), y.clone()
    for out, expected in zip(runner.replay(1, {"x": y, "y": x}), (old_y, old_x), strict=True):
        assert torch.equal(out, expected)
    assert torch.equal(runner.replay(1, {"x": x, "y": x})[1], old_y)
    rows = randn(5, 8)
    expected = rows[:4] * 2
    runner.capture(2, lambda: rows[1:] * 2, {}, {"rows": rows[1:]})
    assert torch.equal(runner.replay(2, {"rows": rows[:4]}), expected)


def test_replay_checks_addresses(x, w):
    static = {"w": w}
    runner = GraphRunner()
    runner.capture(1, lambda: x @ w, static, {"x": x})
    static["w"] = w.clone()
    assert replay_refused(runner, {"x": x}).code == "KVC524"
    del static["w"]
    assert replay_refused(runner, {"x": x}).code == "KVC524"
    static["w"] = w
    runner.replay(1, {"x": x})
    w.data = w.clone()
    assert "'w'" in replay_refused(runner, {"x": x}).message


def test_a_replaced_number_is_noticed(x):
    """Equal or not: what counts is where it lies."""
    one = torch.ones(1)
    static, runner = {"one": one}, GraphRunner()
    runner.capture(1, lambda: x * one, static, {"x": x})
    for other in (torch.ones(1), torch.zeros(1), torch.ones(()), torch.ones(2, 2), torch.ones(1).int(), None, 3):
        static["one"] = other
        assert "'one'" in replay_refused(runner, {"x": x}).message
    static["one"] = one
    runner.replay(1, {"x": x})


@pytest.mark.parametrize("device", ["cpu"], indirect=True)  # on a GPU such an op cannot be captured
def test_replay_checks_shapes_of_ops_that_hide_them(x):
    library = torch.library.Library("kvc_test_shapes", "DEF")
    library.define("grow(Tensor x) -> Tensor")
    library.impl("grow", lambda x: x.new_zeros(int(x.sum())), "CPU")
    n = torch.ones(2, dtype=torch.int32)
    runner = GraphRunner()
    runner.capture(1, lambda: torch.ops.kvc_test_shapes.grow.default(n), {}, {"n": n})
    assert replay_refused(runner, {"n": torch.full((2,), 2, dtype=torch.int32)}).code == "KVC524"


def test_registering_refuses_what_is_no_tensor(x):
    runner = GraphRunner()
    for static in ({"x": x}, {"n": 3}, {"m": torch.empty(1, device="meta")}):
        with pytest.raises(KvcError) as caught:
            runner.capture(1, lambda: x, static, {"x": x})
        assert caught.value.diagnostics[0].code == "KVC525"
