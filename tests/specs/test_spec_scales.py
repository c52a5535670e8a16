"""Where scales come from: of the checkpoint by name, and of context attention."""

import pytest
from spec_kinds import LAYERS, spec_text

from kvc.capabilities.checkpoint_names import SCALES
from kvc.specs import load_spec_text
from kvc.specs.compilable import compile_findings
from kvc.specs.resolved import ContextAttention, LayerRun, ScaleSource


def mla_run(cache: str, attention: str = "context: act") -> list[LayerRun]:
    text = spec_text("mla", "mla", cache=cache, more=f"attention: {{{attention}}}")
    return list(load_spec_text(text, "some.yaml").runs)


def test_scales_of_a_checkpoint_have_names() -> None:
    (run,) = mla_run("encoding: fp8, tokens_per_page: 16, scales: {source: checkpoint}")
    assert run.scales == ScaleSource("checkpoint", names=(("latent", SCALES["mla"]["latent"]),))
    assert run.scales.fields == ("latent",)
    named = "encoding: fp8, tokens_per_page: 16, scales: {source: checkpoint, names: {latent: 'kv.{layer}.s'}}"
    assert mla_run(named)[0].scales.names == (("latent", ("kv.{layer}.s",)),)


def test_scales_of_context_attention() -> None:
    bf16 = "encoding: bf16, tokens_per_page: 16"
    assert mla_run(bf16)[0].context == ContextAttention()
    (unit,) = mla_run(bf16, "context: fp8, scales: {source: unit}")
    assert unit.context == ContextAttention("fp8", ScaleSource("unit", (("q", 1.0), ("k", 1.0), ("v", 1.0))))
    values = "context: fp8, scales: {source: values, values: {q: 0.5, k: [0.25, 0.125], v: 2.0}}"
    runs = mla_run(bf16, values)
    assert [run.context.scales.values for run in runs] == [
        (("q", 0.5), ("k", 0.25), ("v", 2.0)),
        (("q", 0.5), ("k", 0.125), ("v", 2.0)),
    ]
    (named,) = mla_run(bf16, "context: fp8, scales: {source: checkpoint}")
    assert named.context.scales.names == tuple((field, SCALES["mla"][field]) for field in "qkv")


def test_fp8_context_attention_of_gqa_layers_is_planned_and_not_compiled() -> None:
    text = spec_text("gqa", more="attention: {context: fp8, scales: {source: unit}}")
    (found,) = compile_findings(load_spec_text(text, "some.yaml"))
    assert found.code == "KVC120" and "context attention in fp8" in found.message
    assert found.help.endswith("context attention of gqa layers in `act`")


FP8 = "encoding: fp8, tokens_per_page: 16, scales: {source: unit}"
CHECKPOINT = "{source: checkpoint}"


def test_every_place_may_name_the_checkpoint() -> None:
    """The cache, an override, retained tokens and a draft, each with names of its own."""
    named = "scales: {{source: checkpoint, names: {{k: '{}.{{layer}}'}}}}"
    retain = f"retain: {{first: 4, last: 16, encoding: fp8, {named.format('twin')}}}"
    override = f"{{layers: '1', {named.format('own')}}}"
    cache = f"encoding: nvfp4, tokens_per_page: 16, {named.format('cache')}, {retain}, overrides: [{override}]"
    draft = f"draft: {{kind: mtp, layers: 1, max_draft_tokens: 1, encoding: fp8, {named.format('draft')}}}"
    runs = load_spec_text(spec_text("gqa", "gqa", cache=cache, more=draft), "some.yaml").runs
    found = [dict(run.scales.names)["k"] for run in runs]
    assert found == [("cache.{layer}",), ("own.{layer}",), ("draft.{layer}",)]
    twins = [dict(run.retain.scales.names) for run in runs if run.retain]
    assert twins == [{"k": ("twin.{layer}",), "v": SCALES["gqa"]["v"]}] * 2


@pytest.mark.parametrize("kind", ["gqa", "mla", "dsa", "v4"])
def test_every_kind_with_attention_has_names(kind: str) -> None:
    tokens = "encoding: fp8, tokens_per_page: 16, scales: {source: checkpoint}"
    text = spec_text(kind, cache=tokens, more=f"attention: {{context: fp8, scales: {CHECKPOINT}}}")
    (run,) = load_spec_text(text, "some.yaml").runs
    assert run.scales.fields == (("k", "v") if kind == "gqa" else ("latent",))
    assert run.context.scales.fields == ("q", "k", "v")


def test_recurrent_layers_have_no_context_attention() -> None:
    more = f"attention: {{context: fp8, scales: {CHECKPOINT}}}"
    found = load_spec_text(spec_text("mla", "mamba2", cache=FP8, more=more), "some.yaml").runs
    assert [run.context.dtype for run in found] == ["fp8", "act"]
    assert found[1].context == ContextAttention()


def test_layers_share_a_run_unless_their_scales_differ() -> None:
    """Names are the same for all layers, whatever number is put into them; lists of numbers cut runs."""
    three = LAYERS["mla"] + ", repeat: 3"
    shared = f"attention: {{context: fp8, scales: {CHECKPOINT}}}"
    assert [run.count for run in load_spec_text(spec_text(three, more=shared), "some.yaml").runs] == [3]
    listed = "attention: {context: fp8, scales: {source: values, values: {q: 1.0, k: [1.0, 1.0, 2.0], v: 1.0}}}"
    assert [run.count for run in load_spec_text(spec_text(three, more=listed), "some.yaml").runs] == [2, 1]
