"""The excerpts of docs/passes.md are lines of the golden graphs."""

import re
from pathlib import Path

import pytest

from kvc.compiler_passes.manager import PIPELINE

ROOT = Path(__file__).parents[2]
GOLDEN = [
    ROOT / "tests" / "graphs" / "golden" / name for name in ("smollm2-135m-fp8", "deepseek-v3-fp8", "deepseek-v3-mixed")
]
EXCERPTS = re.findall(r"```text\n([\s\S]*?)```", (ROOT / "docs" / "passes.md").read_text())


def without_provenance(text: str) -> str:
    return re.sub(r"  # .*", "", text)


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=range(len(EXCERPTS)))
def test_excerpt_is_real(excerpt: str) -> None:
    assert any(excerpt in without_provenance(path.read_text()) for folder in GOLDEN for path in folder.glob("*.txt"))


def test_every_pass_has_a_section() -> None:
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "passes.md").read_text(), re.MULTILINE)
    assert headings == [one.name for one in PIPELINE]
