from dataclasses import replace

import pytest
from tiny_engine import lowered

from kvc.capabilities import Kernel
from kvc.compiler_passes import capture_cuda_graphs, select_kernels
from kvc.compiler_passes.capture_cuda_graphs import CaptureCudaGraphs
from kvc.compiler_passes.manager import PIPELINE, run_passes
from kvc.compiler_passes.select_kernels import SelectKernels
from kvc.compiler_passes.stages import REFRESH_RULES
from kvc.diagnostics import KvcError
from kvc.graphs.program import Program
from kvc.graphs.text import parse_graph, print_graph
from kvc.ops import kernels
from kvc.ops.kernels import usable_kernels

FAST = Kernel("gqa_decode", "wgmma", ("cuda",), ("sm_90",), ("cuda",), "Hopper")
SLOW = Kernel("gqa_decode", "reference", ("cpu", "cuda"), None, ("cpu",), "plain torch; reads lengths on the host")


def table(monkeypatch: pytest.MonkeyPatch, rows: tuple[Kernel, ...]) -> None:
    for module in (select_kernels, kernels):
        monkeypatch.setattr(module, "KERNELS", rows)


@pytest.fixture
def two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with a kernel for one architecture, listed after the generic one."""
    others = tuple(k for k in select_kernels.KERNELS if k.op != "gqa_decode" and k.name == "reference")
    table(monkeypatch, (SLOW, FAST, *others))


def hoisted(device: str, arch: str | None) -> Program:
    program, _ = lowered("tiny-fp8")
    return run_passes(replace(program, device=device, arch=arch), passes=PIPELINE[:2])[0]


@pytest.mark.parametrize(
    ("device", "arch", "kernel"),
    [("cuda", "sm_90", "wgmma"), ("cuda", "sm_100", "reference"), ("cpu", None, "reference")],
)
def test_kernel_of_the_architecture_goes_first(two_kernels: None, device: str, arch: str | None, kernel: str) -> None:
    result = SelectKernels().run(hoisted(device, arch))
    text = print_graph(result.program.graphs["gqa0", "generation"])
    decode = next(line for line in text.splitlines() if "gqa_decode" in line)
    assert f" @{kernel}" in decode
    assert print_graph(parse_graph(text)) == text
    generic = f"gqa_decode takes the generic kernel on {arch}" in result.notes
    assert generic == (device == "cuda" and kernel == "reference")


def test_ops_of_torch_get_no_kernel() -> None:
    text = print_graph(SelectKernels().run(hoisted("cpu", None)).program.prologues["generation"])
    select = next(line for line in text.splitlines() if "aten.select" in line)
    assert "@" not in select and text.count("@reference") == 3


def test_no_kernel_names_op_device_and_arch(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(k for k in select_kernels.KERNELS if k.op != "gqa_decode")
    table(monkeypatch, (*rows, FAST))
    with pytest.raises(KvcError) as caught:
        SelectKernels().run(hoisted("cuda", "sm_80"))
    (found,) = caught.value.diagnostics
    assert found.code == "KVC314"
    assert found.message.startswith("op gqa_decode has no kernel for cuda sm_80: gqa0.generation: %")
    assert found.help == "kernels of gqa_decode: cuda sm_90"


def test_unknown_device_has_no_kernels() -> None:
    assert usable_kernels("rope", "tpu", None) == []


def test_plan_covers_every_generation_callable_and_input() -> None:
    program, log = run_passes(lowered("tiny-mixed")[0])
    plan = program.capture
    assert plan is not None
    assert plan.buckets == program.buckets
    assert [region.callable for region in plan.regions] == ["prologue.generation", "gqa0.generation", "gqa1.generation"]
    assert set(plan.regions[0].inputs.values()) == {"copied"}
    assert plan.regions[1].inputs == {
        "input.q": "derived",
        "input.k": "derived",
        "input.v": "derived",
        "pool.history": "static",
        "scale.k": "static",
        "scale.v": "static",
        "table.rope": "static",
        "prologue.positions": "derived",
        "prologue.lengths": "derived",
        "prologue.page_table_1": "derived",
        "prologue.rows_1": "derived",
    }
    assert any("context graphs are not captured" in line for line in log.lines(explain=True))


def test_one_call_that_cannot_be_captured_leaves_no_plan(two_kernels: None) -> None:
    chosen = SelectKernels().run(hoisted("cuda", "sm_90")).program
    result = CaptureCudaGraphs().run(chosen)
    assert result.program.capture is None and result.fired == 0
    ops = {miss.at.split("kvc.")[1].split("(")[0] for miss in result.misses}
    assert "store_rows" in ops and "gqa_decode" not in ops
    assert all("plain torch; reads lengths on the host" in miss.reason for miss in result.misses)


def test_input_without_a_refresh_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {role: rule for role, rule in REFRESH_RULES.items() if role != "step"}
    monkeypatch.setattr(capture_cuda_graphs, "REFRESH_RULES", rules)
    with pytest.raises(KvcError) as caught:
        CaptureCudaGraphs().run(SelectKernels().run(hoisted("cpu", None)).program)
    assert caught.value.diagnostics[0].code == "KVC315"
    assert "prologue.generation: step.slot_tables has no rule" in caught.value.diagnostics[0].message
