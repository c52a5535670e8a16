"""Where scales come from: of the checkpoint by name, and of context attention."""

from spec_kinds import spec_text

from kvc.capabilities.checkpoint_names import SCALES
from kvc.specs import load_spec_text
from kvc.specs.compilable import compile_findings
from kvc.specs.resolved import ContextAttention, LayerRun, ScaleSource


def mla_run(cache: str, attention: str = "context: act") -> list[LayerRun]:
    text = spec_text("mla", "mla", cache=cache, more=f"attention: {{{attention}}}")
    return list(load_spec_text(text, "some.yaml").runs)


def test_scales_of_a_checkpoint_have_names() -> None:
    (run,) = mla_run("encoding: fp8, tokens_per_page: 16, scales: {source: checkpoint}")
    assert run.scales == ScaleSource("checkpoint", names=(("latent", SCALES["latent"]),))
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
    assert named.context.scales.names == tuple((field, SCALES[field]) for field in "qkv")


def test_fp8_context_attention_of_gqa_layers_is_planned_and_not_compiled() -> None:
    text = spec_text("gqa", more="attention: {context: fp8, scales: {source: unit}}")
    (found,) = compile_findings(load_spec_text(text, "some.yaml"))
    assert found.code == "KVC120" and "context attention in fp8" in found.message
    assert found.help.endswith("context attention of gqa layers in `act`")
