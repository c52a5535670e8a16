"""What only a GPU can show: one memory pool, and ops that a CUDA graph cannot hold."""

import pytest
import torch

from kvc.diagnostics import KvcError
from kvc.runtime.graph_runner import GraphRunner

pytestmark = pytest.mark.gpu


@pytest.fixture
def x():
    return torch.ones(4, 8, device="cuda")


@pytest.fixture
def waiting():
    """An op whose implementation reads a number back."""
    library = torch.library.Library("kvc_test_cuda", "DEF")
    library.define("waits(Tensor x) -> Tensor")
    library.impl("waits", lambda x: x * float(x.sum()), "CUDA")
    yield torch.ops.kvc_test_cuda.waits.default
    library._destroy()


def test_an_op_that_waits_is_named(x, waiting):
    runner = GraphRunner()
    with pytest.raises(KvcError) as caught:
        runner.capture(1, lambda: waiting(x + 1), {}, {"x": x})
    found = caught.value.diagnostics[0]
    assert found.code == "KVC529"
    assert "kvc_test_cuda::waits" in found.message or "aten::_local_scalar_dense" in found.message
    assert runner.buckets == ()


def test_a_refused_capture_leaves_the_runner_usable(x, waiting):
    runner = GraphRunner()
    with pytest.raises(KvcError):
        runner.capture(1, lambda: waiting(x), {}, {"x": x})
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.randn(1 << 20, device="cuda").sum().item()
    out = runner.capture(1, lambda: x * 2, {}, {"x": x})
    runner.replay(1, {"x": torch.full_like(x, 3)})
    assert (out == 6).all()


def test_buckets_share_one_pool():
    runner, sizes = GraphRunner(), (4 << 20, 2 << 20, 1 << 20)
    inputs = {n: torch.ones(n, device="cuda") for n in sizes}
    reserved = []
    for n in sizes:
        runner.capture(n, lambda n=n: (((inputs[n] + 1) * 2 + 1) * 2)[:8] + 0, {}, {"x": inputs[n]})
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved == sorted(reserved, reverse=True), "a smaller bucket takes no memory of its own"
    for n in sizes:
        assert runner.replay(n, {"x": torch.ones(n, device="cuda")}).tolist() == [10] * 8


def test_replays_are_ordered_with_the_callers_stream(x):
    runner = GraphRunner()
    out = runner.capture(1, lambda: x @ x.t(), {}, {"x": x})
    for value in range(5):
        runner.replay(1, {"x": torch.full_like(x, value)})
        assert (out == 8 * value * value).all()


def test_tensors_of_two_devices_are_refused(x):
    with pytest.raises(KvcError, match=r"KVC525.*one CPU or GPU"):
        GraphRunner().capture(1, lambda: x, {"w": torch.ones(1)}, {"x": x})
