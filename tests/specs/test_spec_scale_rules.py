"""Rules about scales both ways: what is refused, where and with which help, and what is taken beside it."""

import pytest
from spec_kinds import LAYERS, spec_text
from spec_texts import findings, place

from kvc.capabilities import LAYER_CAPABILITIES
from kvc.specs import load_spec_text
from kvc.specs.compilable import compile_findings

_NUMBERS = "q: 0.5, k: 0.25, v: 2.0"
_UNIT, _CHECKPOINT = "{source: unit}", "{source: checkpoint}"
_VALUES = f"{{source: values, values: {{{_NUMBERS}}}}}"


def attention(fields: str, *layers: str, more: str = "") -> str:
    return spec_text(*(layers or ("mla",)), more=f"attention: {{{fields}}}\n{more}")


def fp8(scales: str) -> str:
    return attention(f"context: fp8, scales: {scales}")


def values(numbers: str) -> str:
    return fp8(f"{{source: values, values: {{{numbers}}}}}")


def names(named: str) -> str:
    return fp8(f"{{source: checkpoint, names: {{{named}}}}}")


def draft(encoding: str, more: str = "", layers: int = 2) -> str:
    return f"draft: {{kind: mtp, layers: {layers}, max_draft_tokens: 3, encoding: {encoding}{more}}}"


# what: (text, code, the text that the finding stands at, part of the message, part of the help)
REFUSED = {
    "fp8 without scales": (attention("context: fp8"), "KVC107", "fp8}", "fp8 context attention needs", "{q: ..., k:"),
    "fp8 with none": (attention("context: fp8, scales: null"), "KVC107", "fp8, s", "needs scales", "checkpoint"),
    "scales without fp8": (
        attention(f"context: act, scales: {_UNIT}"),
        "KVC108",
        "scales",
        "context attention is `act`",
        "remove",
    ),
    "scales without attention": (
        attention(f"context: fp8, scales: {_UNIT}", "kda"),
        "KVC108",
        "scales",
        "no layer has attention",
        "remove",
    ),
    "all three numbers are missing": (values(""), "KVC130", "values: {}", "`k`, `q`, `v`", "need `q`, `k`, `v`"),
    "a number of rows": (values(f"{_NUMBERS}, latent: 1.0"), "KVC130", "1.0}", "a scale for `latent`", "`q`, `k`, `v`"),
    "a number of nothing": (values(f"{_NUMBERS}, qk: 1.0"), "KVC020", "qk", "unknown field `qk`", "did you mean `q`?"),
    "no numbers": (fp8("{source: values}"), "KVC021", "scales", "`values` is missing", "add `values:`"),
    "a scale of nought": (values("q: 0.0, k: 1.0, v: 1.0"), "KVC023", "0.0,", "`q` must be at least", "or more"),
    "an empty list": (values("q: [], k: 1.0, v: 1.0"), "KVC023", "q: []", "`q` must not be empty", "at least 1"),
    "numbers beside unit": (fp8("{source: unit, values: {q: 1.0}}"), "KVC020", "values", "unknown field", "`source`"),
    "numbers of a checkpoint": (
        fp8("{source: checkpoint, values: {q: 1.0}}"),
        "KVC020",
        "values",
        "unknown field `values`",
        "`names`",
    ),
    "an unknown source": (fp8("{source: chekpoint}"), "KVC024", "chek", "unknown source", "mean `checkpoint`?"),
    "a name of nothing": (names("vv: 'a.{layer}'"), "KVC020", "vv", "unknown field `vv`", "did you mean `v`?"),
    "an unused name": (names("latent: 'a.{layer}'"), "KVC130", "'a.", "a scale for `latent`", "`q`, `k`, `v`"),
    "an empty name": (names("q: ''"), "KVC023", "''", "needs `{layer}`", "self_attn.k_scale"),
    "a name for all layers": (names("q: model.q_scale"), "KVC023", "model.q", "needs `{layer}`", "self_attn.k_scale"),
    "other braces": (names("q: 'a.{layer}.{head}'"), "KVC023", "'a.", "no other braces", "self_attn.k_scale"),
    "braces with spaces": (names("q: 'a.{ layer }'"), "KVC023", "'a.", "needs `{layer}`", "self_attn.k_scale"),
    "doubled braces": (names("q: 'a.{{layer}}'"), "KVC023", "'a.", "no other braces", "self_attn.k_scale"),
    "a number for a name": (names("q: 3"), "KVC022", "3}", "`q` must be text", 'quote it: "3"'),
    "a list that forgets the drafts": (
        attention(
            "context: fp8, scales: {source: values, values: {q: 1.0, k: [1.0], v: 1.0}}", "mla", more=draft("bf16")
        ),
        "KVC109",
        "k: [",
        "1 scales for 3 layers, draft layers among them",
        "one a layer",
    ),
    "a draft does not take over a checkpoint's": (
        spec_text("mla", cache=f"encoding: fp8, tokens_per_page: 16, scales: {_CHECKPOINT}", more=draft("fp8")),
        "KVC107",
        "fp8}",
        "encoding `fp8` needs scales",
        "{latent: ...}",
    ),
    "an unused name of a draft": (
        spec_text("mla", more=draft("fp8", ", scales: {source: checkpoint, names: {k: 'a.{layer}'}}")),
        "KVC130",
        "'a.",
        "a scale for `k`",
        "need `latent`",
    ),
    "an unused name of an override": (
        spec_text(
            "mla",
            "mla",
            cache=f"encoding: fp8, tokens_per_page: 16, scales: {_UNIT}, "
            "overrides: [{layers: '1', scales: {source: checkpoint, names: {rope: 'a.{layer}'}}}]",
        ),
        "KVC130",
        "'a.",
        "a scale for `rope`",
        "need `latent`",
    ),
    "an unused name of a twin": (
        spec_text(
            "gqa",
            cache=f"encoding: nvfp4, tokens_per_page: 16, scales: {_CHECKPOINT}, retain: {{first: 4, last: 4, "
            "encoding: fp8, scales: {source: checkpoint, names: {latent: 'a.{layer}'}}}",
        ),
        "KVC130",
        "'a.",
        "a scale for `latent`",
        "need `k`, `v`",
    ),
    "a checkpoint's for an encoding without": (
        spec_text("mla", cache=f"encoding: bf16, tokens_per_page: 16, scales: {_CHECKPOINT}"),
        "KVC108",
        "scales",
        "encoding `bf16` has none",
        "encodings with scales: `fp8`",
    ),
}


@pytest.mark.parametrize(("text", "code", "at", "message", "help"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, code: str, at: str, message: str, help: str) -> None:
    (found,) = findings(text)
    before = text[: text.rindex(at)]
    assert found.code == code and message in found.message and help in found.help
    assert place(found) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


TAKEN = {
    "unit": fp8(_UNIT),
    "numbers": fp8(_VALUES),
    "a list": values("q: [0.5], k: 0.25, v: 2.0"),
    "a checkpoint": fp8(_CHECKPOINT),
    "a checkpoint, no names": names(""),
    "a checkpoint, some names": names("q: 'a.{layer}', k: '{layer}'"),
    "one name for two fields": names("k: 'kv.{layer}', v: 'kv.{layer}'"),
    "act": attention("context: act"),
    "neither": attention(""),
    "beside a recurrent layer": attention(f"context: fp8, scales: {_UNIT}", "kda", "mla"),
    "drafts with attention alone": attention(
        f"context: fp8, scales: {_UNIT}", "kda", more=draft("bf16", f", layer: {{{LAYERS['mla']}}}")
    ),
}


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_taken(text: str) -> None:
    load_spec_text(text, "some.yaml")


@pytest.mark.parametrize("wrong", ["bf16", "FP8", "null"])
def test_a_wrong_context_says_what_fp8_takes(wrong: str) -> None:
    (found,) = findings(attention(f"context: {wrong}"))
    assert found.code == "KVC023" and "must be one of `act`, `fp8`" in found.message
    assert "allowed: `act`, `fp8` (" in found.help and "under `scales`" in found.help
    assert "compiled for layers of kind `mla` alone" in found.help


def test_which_kinds_compile_fp8_context_attention_is_a_column() -> None:
    """What the help says, and that nothing else passes."""
    assert {row.kind for row in LAYER_CAPABILITIES if "fp8" in row.context} == {"mla"}
    for kind, codes in {"mla": [], "gqa": ["KVC120"]}.items():
        spec = load_spec_text(attention(f"context: fp8, scales: {_UNIT}", kind), "some.yaml")
        assert [found.code for found in compile_findings(spec)] == codes
    (found,) = compile_findings(load_spec_text(attention(f"context: fp8, scales: {_UNIT}", "mla", "gqa"), "some.yaml"))
    assert found.message.startswith("layer 1 cannot") and "row gqa | full | bf16" in found.message


def test_draft_layers_take_the_end_of_a_list() -> None:
    numbers = "context: fp8, scales: {source: values, values: {q: 1.0, k: [0.5, 0.25, 2.0, 2.0], v: 1.0}}"
    runs = load_spec_text(attention(numbers, "mla", more=draft("bf16", layers=3)), "some.yaml").runs
    found = [(run.domain, list(run.layers), dict(run.context.scales.values)["k"]) for run in runs]
    assert found == [("target", [0], 0.5), ("draft", [1], 0.25), ("draft", [2, 3], 2.0)]


def test_draft_layers_stay_one_run_without_a_list() -> None:
    runs = load_spec_text(attention(f"context: fp8, scales: {_VALUES}", "mla", more=draft("bf16")), "some.yaml").runs
    assert [(run.domain, list(run.layers)) for run in runs] == [("target", [0]), ("draft", [1, 2])]
    assert runs[1].context == runs[0].context and runs[1].context.dtype == "fp8"
