"""`kvc explain`, and the table of codes behind it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kvc.diagnostic_codes import CODES

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
_PACKAGES = ("kvc", "specs", "graphs", "ops", "compiler_passes")


def reported() -> dict[str, str]:
    """Every code in a string of the sources -> a file that has it; the table itself left out."""
    files = [file for package in _PACKAGES for file in (ROOT / package).rglob("*.py")]
    sources = [file for file in files if "diagnostic_codes" not in file.parts]
    return {
        code: str(file.relative_to(ROOT))
        for file in sources
        for code in re.findall(r'"(KVC\d{3})[":]', file.read_text())
    }


def test_every_reported_code_is_explained() -> None:
    assert {code: file for code, file in reported().items() if code not in CODES} == {}


def test_every_explained_code_is_reported() -> None:
    assert sorted(set(CODES) - set(reported())) == []


@pytest.mark.parametrize("code", CODES)
def test_entries_are_complete(code: str) -> None:
    entry = CODES[code]
    assert entry.title and not entry.title.endswith(".")
    assert entry.explanation.endswith(".") and len(entry.explanation) > 20


def test_a_page(run_kvc: Run) -> None:
    page = """\
KVC104: query heads do not divide into KV heads

In grouped-query attention each KV head serves the same number of query heads.

Refused, for example:
    heads: 32
    kv_heads: 5
"""
    for name in ("KVC104", "kvc104", "104"):
        assert run_kvc("explain", name) == (0, page, "")


def test_the_list(run_kvc: Run) -> None:
    code, out, err = run_kvc("explain")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == sorted(CODES)


@pytest.mark.parametrize("name", ["KVC999", "x", "", "²"])
def test_unknown_codes(run_kvc: Run, name: str) -> None:
    code, out, err = run_kvc("explain", name)
    assert (code, out) == (2, "") and "there is no code" in err
