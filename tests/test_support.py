"""`docs/support.md` says what the capability tables say, and the tables what specs and compiler do."""

from pathlib import Path

import pytest

from kvc.capabilities import COVERAGES, LAYER_CAPABILITIES, STORAGE_CAPABILITIES
from kvc.encodings import ENCODINGS, Field, page_layout
from kvc.report.support import support_text

PAGE = Path(__file__).parents[1] / "docs" / "support.md"
LATENT = {"fp8_ds_mla": 512, "fp8_ds_mla_v4": 448}


def test_the_page_is_made_from_the_tables():
    assert PAGE.read_text() == support_text()


def test_what_is_compiled_can_be_planned():
    planned = {(row.kind, row.encoding): row for row in STORAGE_CAPABILITIES}
    for row in LAYER_CAPABILITIES:
        storage = planned[row.kind, row.encoding]
        assert row.coverage in COVERAGES[row.kind]
        assert set(row.dtypes) <= set(storage.dtypes) and set(row.twins) <= set(storage.twins)
        assert storage.draft or not row.draft


@pytest.mark.parametrize("row", STORAGE_CAPABILITIES, ids=lambda row: f"{row.kind} {row.encoding}")
def test_what_can_be_planned_has_a_layout(row):
    latent = (Field("latent", 1, LATENT.get(row.encoding, 512)), Field("rope", 1, 64))
    fields = (Field("k", 2, 64), Field("v", 2, 64)) if row.kind == "gqa" else latent
    for encoding in (row.encoding, *row.twins):
        assert page_layout(ENCODINGS[encoding], fields, 64).page_bytes > 0
