"""Every kind of layer: what it resolves to, what is refused, and what can be planned but not compiled."""

from dataclasses import replace

import pytest
from spec_kinds import KINDS, LAYERS, Broken, spec_text
from spec_texts import findings, place

from kvc.capabilities import LAYER_CAPABILITIES
from kvc.encodings import Field, StateTensor
from kvc.specs import compilable, load_spec_text
from kvc.specs.compilable import compile_findings
from kvc.specs.resolved import Coverage, LayerRun, Retained, ScaleSource

UNIT = "encoding: nvfp4, tokens_per_page: 16, scales: {source: unit}"
TWIN = "retain: {first: 8, last: 16, encoding: fp8, scales: {source: unit}}"


@pytest.mark.parametrize("case", KINDS, ids=lambda case: f"{case.code} {case.message[:40]}")
def test_refused(case: Broken) -> None:
    found = [finding for finding in findings(case.text) if finding.code == case.code]
    assert len(found) == 1, findings(case.text)
    before = case.text[: case.text.rindex(case.at)]
    assert place(found[0]) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert case.message in found[0].message and case.help in found[0].help


def run_of(*layers: str, **other: str) -> LayerRun:
    return load_spec_text(spec_text(*layers, **other)).runs[-1]


COVERAGES = {
    "gqa": Coverage(),
    "window": Coverage("window", 64, 4),
    "chunk": Coverage("chunk", 64),
    "mla": Coverage(),
    "dsa": Coverage(),
    "v4": Coverage("compressed", ratio=4),
    "v4 window": Coverage("window", 8),
    **dict.fromkeys(("mamba2", "delta", "kda", "other"), Coverage("recurrent")),
}


@pytest.mark.parametrize("name", LAYERS)
def test_coverage(name: str) -> None:
    run = run_of(name)
    assert run.coverage == COVERAGES[name]
    assert run.encoding == ("state" if run.coverage.kind == "recurrent" else "bf16")


def test_fields_of_a_row() -> None:
    latent = (Field("latent", 1, 64), Field("rope", 1, 16))
    assert run_of("mla").shape.fields == run_of("dsa").shape.fields == latent
    assert run_of("dsa").shape.indexer.fields == (Field("key", 1, 128),)
    assert run_of("v4").shape.fields == (Field("latent", 1, 48), Field("rope", 1, 16))
    assert run_of("gqa", LAYERS["gqa"] + ", shares_kv_of: 0").shape.fields == ()


def test_a_shared_indexer_keeps_no_key() -> None:
    assert run_of("dsa", LAYERS["dsa"].replace("index_key", "index_key, shared: true")).shape.indexer.fields == ()


def test_states() -> None:
    assert run_of("mamba2").shape.states == (
        StateTensor("conv", (8 * 16 + 2 * 2 * 32, 3), "bf16", 0),
        StateTensor("ssm", (8, 16, 32), "fp32", 0),
    )
    assert run_of("delta").shape.states == (
        StateTensor("conv", (2 * 4 * 16 + 8 * 32, 3), "bf16", 0),
        StateTensor("delta", (8, 16, 32), "fp32", 0),
    )
    kda = run_of("kda").shape.states
    assert [(state.name, state.shape) for state in kda] == [
        ("conv_q", (128, 3)),
        ("conv_k", (128, 3)),
        ("conv_v", (128, 3)),
        ("delta", (8, 16, 16)),
    ]
    assert run_of("other").shape.states == (StateTensor("kv", (8, 16), "fp32", 0),)


def test_tokens_that_wait_for_compression() -> None:
    """Two groups of 4 where rows overlap, two projections a token, and room for three drafted tokens."""
    states = run_of("v4", more="draft: {kind: mtp, layers: 1, max_draft_tokens: 3, encoding: bf16}").shape.compressor
    assert [(state.name, state.shape) for state in states.states] == [
        ("compressor.kv", (11, 128)),
        ("compressor.gate", (11, 128)),
        ("indexer.kv", (11, 256)),
        ("indexer.gate", (11, 256)),
    ]


def test_tensor_parallelism_divides_heads_and_copies_what_it_cannot() -> None:
    two, eight = "parallel: {tensor: 2}", "parallel: {tensor: 8}"
    gqa = run_of("gqa", more=two)
    assert (gqa.shape.heads, gqa.shape.kv_heads, gqa.shards) == (4, 2, 2)
    copied = run_of("gqa", more=eight)
    assert (copied.shape.heads, copied.shape.kv_heads, copied.shards) == (1, 1, 4)
    mla = run_of("mla", more=two)
    assert (mla.shape.heads, mla.shape.kv_lora_rank, mla.shards) == (2, 64, 1)
    assert [state.shape for state in run_of("mamba2", more=two).shape.states] == [(4 * 16 + 2 * 32, 3), (4, 16, 32)]
    assert run_of("other", more=eight).shape.states[0].shape == (1, 16)


def test_yarn_scales_latent_attention() -> None:
    yarn = "rope: {kind: yarn, theta: 10000, factor: 40, original_max_position: 4096, mscale: M, mscale_all_dim: M}"
    for mscale, factor in (("1.0", 1.8739), ("0.707", 1.5896)):
        shape = run_of(LAYERS["mla"].replace("rope: none", yarn.replace("M", mscale))).shape
        assert shape.softmax_scale * (32 + 16) ** 0.5 == pytest.approx(factor, abs=5e-5)
    given = LAYERS["mla"].replace("rope: none", yarn.replace("M", "1.0")) + ", softmax_scale: 0.5"
    assert run_of(given).shape.softmax_scale == 0.5


def test_scales_by_encoding() -> None:
    assert run_of("mla", cache=UNIT).scales == ScaleSource("unit", (("latent", 1.0),))
    own = run_of("mla", cache=UNIT.replace("nvfp4", "nvfp4_rope_fp8")).scales
    assert own == ScaleSource("unit", (("latent", 1.0), ("rope", 1.0)))
    wide = LAYERS["dsa"].replace("kv_lora_rank: 64", "kv_lora_rank: 512").replace("head_dim: 16, v", "head_dim: 64, v")
    assert run_of(wide, cache="encoding: fp8_ds_mla, tokens_per_page: 16").scales == ScaleSource("none")


def test_windows_of_a_mixed_cache_are_in_the_high_encoding() -> None:
    cache = f"{UNIT}, {TWIN}"
    spec = load_spec_text(spec_text("gqa", "window", "chunk", "kda", cache=cache))
    twin = Retained(8, 16, "token", "fp8", ScaleSource("unit", (("k", 1.0), ("v", 1.0))))
    assert [(run.encoding, run.retain) for run in spec.runs] == [
        ("nvfp4", twin),
        ("fp8", None),
        ("fp8", None),
        ("state", None),
    ]


def test_overrides_of_retain() -> None:
    overrides = 'overrides: [{layers: "0", retain: null}, {layers: "2", encoding: fp8}]'
    spec = load_spec_text(spec_text("gqa", "gqa", "window", cache=f"{UNIT}, {TWIN}, {overrides}"))
    assert [(run.encoding, run.retain is None) for run in spec.runs] == [
        ("nvfp4", True),
        ("nvfp4", False),
        ("fp8", True),
    ]


def test_a_name_of_a_mixed_cache_is_what_it_stands_for() -> None:
    named = spec_text("gqa", cache=f"{UNIT}, {TWIN}".replace("nvfp4", "mixed_nvfp4_fp8").replace(" encoding: fp8,", ""))
    written = spec_text("gqa", cache=f"{UNIT}, {TWIN}")
    assert load_spec_text(named).digest == load_spec_text(written).digest
    assert load_spec_text(named).runs == load_spec_text(written).runs


@pytest.mark.parametrize("layers", [("mla", "kda"), ("gqa", "mla"), ("mla", "gqa")])
def test_a_draft_layer_is_the_last_layer_with_attention(layers: tuple[str, ...]) -> None:
    more = "draft: {kind: mtp, layers: 2, max_draft_tokens: 3, encoding: fp8, scales: {source: unit}}"
    spec = load_spec_text(spec_text(*layers, more=more))
    attention = [run for run in spec.runs if run.domain == "target" and run.shape.kind != "recurrent"][-1]
    draft = spec.runs[-1]
    assert (draft.domain, draft.first, draft.count, draft.encoding) == ("draft", 2, 2, "fp8")
    assert draft.shape == attention.shape and draft.source.line == 11
    assert spec.draft and spec.draft.max_tokens == 3


def test_a_draft_may_have_a_layer_of_its_own() -> None:
    layer = f"layer: {{{LAYERS['gqa']}}}, tokens_per_page: 32"
    more = f"draft: {{kind: eagle, layers: 1, max_draft_tokens: 3, encoding: bf16, {layer}}}"
    draft = load_spec_text(spec_text("mla", more=more)).runs[-1]
    assert (draft.shape.kind, draft.tokens_per_page, draft.domain) == ("gqa", 32, "draft")


REFUSED = {
    "v4": ("KVC103", "kind mla_sparse deepseek_v4"),
    "kda": ("KVC103", "kind recurrent kda"),
    "window": ("KVC111", "coverage window 64"),
    "chunk": ("KVC111", "coverage chunk 64"),
    LAYERS["gqa"] + ", softcap: 50.0": ("KVC112", "softcap"),
    LAYERS["gqa"] + ", sink_logits: true": ("KVC112", "sink_logits"),
}


@pytest.mark.parametrize("layer", REFUSED)
def test_what_can_be_planned_and_not_compiled_names_layer_and_row(layer: str) -> None:
    spec = load_spec_text(spec_text("gqa", layer, layer), "some.yaml")
    found = list(compile_findings(spec))
    code, what = REFUSED[layer]
    assert {finding.code for finding in found} == {code}
    assert found[0].source and found[0].source.line == 8
    assert what in found[0].message and "layer" in found[0].message and " | " in found[0].message
    assert "it can be planned; compiled so far: " in found[0].help


def test_storage_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the table alone say what can be: without them a twin and an encoding are refused."""
    rows = [replace(row, twins=()) for row in LAYER_CAPABILITIES if (row.kind, row.encoding) != ("mla", "nvfp4")]
    monkeypatch.setattr("kvc.specs.compilable.LAYER_CAPABILITIES", tuple(rows))
    (found,) = compile_findings(load_spec_text(spec_text("gqa", cache=f"{UNIT}, {TWIN}")))
    assert found.code == "KVC140" and "a twin in fp8" in found.message
    (found,) = compile_findings(load_spec_text(spec_text("mla", cache=UNIT)))
    assert found.code == "KVC140" and "encoding nvfp4" in found.message


def test_drafts_are_compiled_where_the_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    more = "draft: {kind: mtp, layers: 1, max_draft_tokens: 3, encoding: bf16}"
    spec = load_spec_text(spec_text("gqa", more=more))
    assert not list(compile_findings(spec))
    rows = tuple(replace(row, draft=False) for row in compilable.LAYER_CAPABILITIES)
    monkeypatch.setattr(compilable, "LAYER_CAPABILITIES", rows)
    (found,) = compile_findings(spec)
    assert found.code == "KVC121" and found.source and found.source.line == 10


def test_what_is_compiled_has_no_findings() -> None:
    assert not list(compile_findings(load_spec_text(spec_text("gqa"))))
