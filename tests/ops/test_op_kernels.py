"""Which kernel an op runs: rows of the capability table against what a call is like."""

import pytest
import torch

from kvc.capabilities import KERNELS, Kernel
from kvc.diagnostics import KvcError
from kvc.ops import OPS, kernels
from kvc.ops.example_inputs import SHAPES

FAST = Kernel("rope", "fast", ("cuda",), ("sm_90",), ("cuda",), "", (("D", (128,)), ("x", ("bfloat16",))))
TWIN = Kernel("mla_decode", "twin", ("cuda",), ("sm_90",), ("cuda",), "", (("twin_encoding", ("fp8",)),))


def facts(op: str, shape: str = "plain") -> dict:
    args, kwargs = OPS[op].example(SHAPES[shape])
    return kernels.facts(OPS[op], args, kwargs)


def test_facts_are_sizes_attributes_and_dtypes() -> None:
    found = facts("mla_decode")
    assert (found["C"], found["encoding"], found["q_latent"]) == (48, "fp8", "bfloat16")
    assert found["twin"] == "none" and found["twin_encoding"] is None and found["unit"] == "token"


def test_facts_need_no_data() -> None:
    args, kwargs = OPS["rope"].example(SHAPES["plain"])
    fakes = [torch.empty_like(x, device="meta") for x in args]
    assert kernels.facts(OPS["rope"], fakes, kwargs) == kernels.facts(OPS["rope"], args, kwargs)


def test_a_row_says_why_it_does_not_take_a_call() -> None:
    assert kernels.refused(FAST, facts("rope")) == "D is 32, fast takes 128"
    assert kernels.refused(FAST, facts("rope") | {"D": 128}) == ""
    assert kernels.refused(FAST, facts("rope") | {"D": 128, "x": "float32"}) == "x is float32, fast takes bfloat16"
    assert kernels.refused(TWIN, facts("mla_decode")) == "twin_encoding is None, twin takes fp8"


def test_the_first_row_of_the_architecture_that_takes_a_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    general = Kernel("rope", "general", ("cuda",), ("sm_90",), ("cuda",), "")
    monkeypatch.setattr(kernels, "KERNELS", (FAST, general, *KERNELS))
    kernels._rows.cache_clear()
    monkeypatch.setattr(kernels, "arch_of", lambda device: "sm_90")
    args, kwargs = OPS["rope"].example(SHAPES["plain"])
    assert kernels._chosen(OPS["rope"], args, kwargs) == "general"
    token = kernels._pinned.set("fast")
    try:
        with pytest.raises(KvcError, match="KVC557 kvc::rope: D is 32, fast takes 128"):
            kernels._chosen(OPS["rope"], args, kwargs)
    finally:
        kernels._pinned.reset(token)
        monkeypatch.undo()
        kernels._rows.cache_clear()


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: f"{row.op}-{row.name}")
def test_every_row_names_a_function(row: Kernel) -> None:
    pytest.importorskip("triton")
    assert callable(kernels.implementation(OPS[row.op], row.name))


def test_a_missing_package_is_a_finding() -> None:
    with pytest.raises(KvcError, match="KVC557 kvc::rope: kernel absent needs the package"):
        kernels.implementation(OPS["rope"], "absent")
