"""`attention.kernel`: which layers are staged, and what is refused."""

import pytest
from spec_texts import VALID, findings

from kvc.graphs.lowering.lower import lower
from kvc.plan import make_plan
from kvc.specs import load_spec, load_spec_text
from kvc.specs.compilable import compile_findings

ENGINE = "attention: {kernel: engine}\n"
DRAFT = "draft: {kind: mtp, layers: 2, max_draft_tokens: 2, encoding: fp8}\n"


def test_kvc_computes_attention_unless_told_otherwise() -> None:
    assert {run.kernel for run in load_spec_text(VALID).runs} == {"kvc"}
    assert {run.kernel for run in load_spec_text(VALID + "attention: {kernel: kvc}\n").runs} == {"kvc"}
    assert {run.kernel for run in load_spec_text(VALID + ENGINE).runs} == {"engine"}


def test_the_default_does_not_change_a_spec() -> None:
    plain, said = load_spec_text(VALID), load_spec_text(VALID + "attention: {kernel: kvc}\n")
    assert plain.digest == said.digest != load_spec_text(VALID + ENGINE).digest


def test_draft_layers_and_states_are_not_staged() -> None:
    runs = load_spec_text(VALID + ENGINE + DRAFT).runs
    assert [(run.domain, run.kernel) for run in runs] == [("target", "engine"), ("draft", "kvc")]
    text = VALID.replace(
        "    - kind: gqa\n",
        "    - {kind: recurrent, variant: mamba2, heads: 4, head_dim: 8, "
        "groups: 2, state_dim: 16, conv_kernel: 4, state_dtype: fp32, conv_dtype: fp32}\n    - kind: gqa\n",
    )
    kernels = {run.shape.kind: run.kernel for run in load_spec_text(text + ENGINE).runs}
    assert kernels == {"recurrent": "kvc", "gqa": "engine"}


def test_fp8_context_attention_is_kvcs_own() -> None:
    text = VALID + "attention: {kernel: engine, context: fp8, scales: {source: unit}}\n"
    (found,) = findings(text)
    assert found.code == "KVC161" and found.source.line == text.count("\n")
    assert "remove `context` and `scales`, or write `kernel: kvc`" in found.help


def test_an_unknown_kernel_is_refused() -> None:
    (found,) = findings(VALID + "attention: {kernel: flashinfer}\n")
    assert "kvc" in found.message + found.help and "engine" in found.message + found.help


@pytest.mark.parametrize("name", ["tiny-staged", "tiny-mla-bf16", "tiny-fp8"])
def test_what_can_be_staged_is_a_table_of_kinds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(name)
    assert not any(compile_findings(spec))
    monkeypatch.setattr("kvc.specs.compilable.STAGED_KINDS", ("gqa",))
    refused = [(found.code, found.source) for found in compile_findings(spec)]
    staged = [run for run in spec.runs if run.kernel == "engine" and run.shape.kind != "gqa"]
    assert refused == [("KVC160", run.source) for run in staged]
    assert bool(refused) == (name == "tiny-staged")


def test_only_the_kernel_tells_the_signatures_of_two_specs_apart() -> None:
    programs = []
    for text in (VALID, VALID + ENGINE):
        spec = load_spec_text(text)
        programs.append(lower(spec, make_plan(spec)))
    kvc, engine = programs
    assert engine.signatures == {"gqa0": {**kvc.signatures["gqa0"], "kernel": "engine"}}
    assert "kernel" not in kvc.signatures["gqa0"]
    assert {name for name, _ in engine.graphs} == {"gqa0.stage", "gqa0.write_back"}
    assert {constant.kind for constant in engine.constants.values()} == {"scale"}
