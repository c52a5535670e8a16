"""Rules of mixed caches: what is refused, where and why; what is noted; what a twin never changes."""

import pytest
from spec_mixed import MIXED, NOTED, SILENT, VARIANTS, Broken, Noted, mixed
from spec_texts import findings, place

from kvc.capabilities import (
    COVERAGES,
    DRAFT_TREES,
    MIXED_LAYERS,
    PRECISION,
    STORAGE_CAPABILITIES,
    TWIN_READS,
    UNTWINNED,
)
from kvc.diagnostic_codes import CODES
from kvc.specs import load_spec_text
from kvc.specs.notes import NOTES


def position(text: str, at: str) -> tuple[int, int]:
    before = text[: text.rindex(at)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


@pytest.mark.parametrize("case", (*MIXED, *VARIANTS), ids=lambda case: f"{case.code} {case.message[:50]}")
def test_refused(case: Broken) -> None:
    (found,) = [finding for finding in findings(case.text) if finding.code == case.code]
    assert place(found) == position(case.text, case.at)
    assert case.message in found.message and case.help in found.help


@pytest.mark.parametrize("case", NOTED, ids=lambda case: f"{case.code} {case.message[:50]}")
def test_noted(case: Noted) -> None:
    notes = load_spec_text(case.text, "bad.yaml").notes
    (found,) = [note for note in notes if note.code == case.code]
    assert found.severity == "note" and place(found) == position(case.text, case.at)
    assert case.message in found.message and case.help in found.help


def test_one_mistake_is_one_finding() -> None:
    """The first two have no layer in the low encoding, so that the cache's scales are unused, too."""
    several = [case.message for case in MIXED if len(findings(case.text)) != 1]
    assert several == [case.message for case in MIXED[:2]]


def test_every_note_is_given_here_and_explained() -> None:
    assert {note.code for note in NOTES} == {case.code for case in NOTED}
    assert {note.code for note in NOTES} <= set(CODES)


@pytest.mark.parametrize("text", SILENT)
def test_nothing_to_note(text: str) -> None:
    assert load_spec_text(text).notes == ()


def test_notes_are_in_the_order_of_the_file() -> None:
    retain = "first: 512, last: 513, unit: page, encoding: bf16"
    notes = load_spec_text(mixed("window", "gqa", "kda", retain=retain)).notes
    assert [note.code for note in notes] == ["KVC145", "KVC145", "KVC147", "KVC148"]


def test_every_layer_says_whether_it_accepts_a_twin_and_what_its_own_pool_is() -> None:
    assert [(row.kind, row.coverage) for row in MIXED_LAYERS] == [
        (kind, coverage)
        for kind, coverages in COVERAGES.items()
        for coverage in sorted(coverages, key=lambda name: name == "window" and kind == "mla_sparse deepseek_v4")
    ]
    for row in MIXED_LAYERS:
        assert row.accepts_twin == (row.pool == "low") == (not row.why)
        assert not row.accepts_twin or row.kind in TWIN_READS


def test_twins_are_readable_and_more_precise() -> None:
    for row in STORAGE_CAPABILITIES:
        assert row.encoding in PRECISION
        assert all(PRECISION[twin] > PRECISION[row.encoding] for twin in row.twins)
        assert set(row.twins) <= set(TWIN_READS[row.kind].encodings)
        assert not (row.twins and row.encoding in UNTWINNED)
    assert {row.encoding for row in STORAGE_CAPABILITIES if row.kind == "gqa" and row.twins} == {"fp8", "nvfp4"}


def test_a_chain_is_the_one_draft_that_is_taken() -> None:
    assert [tree for tree, why in DRAFT_TREES.items() if not why] == ["none"]


@pytest.mark.parametrize("retain", ["first: 0, last: 0", "first: 0, last: 0, encoding: fp8, scales: {source: unit}"])
def test_nothing_retained_is_a_plain_cache(retain: str) -> None:
    layers = ("gqa", "window", "dsa", "kda")
    plain = mixed(*layers, retain=retain).replace(f", retain: {{{retain}}}", "")
    assert "retain" not in plain
    assert load_spec_text(mixed(*layers, retain=retain)).runs == load_spec_text(plain).runs


def test_retained_tokens_of_an_override() -> None:
    twin = "retain: {first: 2, last: 3, encoding: fp8, scales: {source: unit}}"
    overrides = f', overrides: [{{layers: "1", {twin}}}, {{layers: "2", retain: null}}, {{layers: "3", encoding: fp8}}]'
    runs = load_spec_text(mixed("gqa", "gqa", "gqa", "gqa", "window", more=overrides)).runs
    assert [(run.encoding, run.retain and (run.retain.first, run.retain.encoding)) for run in runs] == [
        ("nvfp4", (4, "bf16")),
        ("nvfp4", (2, "fp8")),
        ("nvfp4", None),
        ("fp8", (4, "bf16")),
        ("bf16", None),
    ]
