"""Result files of a sweep that were cut off or edited: a table with holes is never gone on from."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from kvc.diagnostics import KvcError
from kvc.report.sweep_results import Found, ResultFiles, Row, Stretch


def made(kind: type, **values: object) -> object:
    """A record with some value in every other column."""
    some = {str: "text", int: 4, float: 0.5}
    return kind(**{field.name: some[field.type] for field in fields(kind)} | values)  # type: ignore[index]


def found(digest: str) -> Found:
    stretches = tuple(made(Stretch, digest=digest, start=at, stop=at + 2) for at in (0, 2))
    return Found(made(Row, digest=digest), stretches)  # type: ignore[arg-type]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    ResultFiles(tmp_path).add([found("one"), found("two")])
    assert set(ResultFiles(tmp_path).found) == {"one", "two"}
    return tmp_path


EDITS: dict[str, tuple[str, Callable[[str], str]]] = {
    "cut off": ("sweep.csv", lambda text: text[:-30]),
    "a value too many": ("sweep.csv", lambda text: text.rstrip("\n") + ",more\n"),
    "no number": ("sweep.csv", lambda text: text.replace("0.5", "nan", 1)),
    "infinite": ("positions.csv", lambda text: text.replace("0.5", "1e999", 1)),
    "cut stretches": ("positions.csv", lambda text: text[:-12]),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_damaged_table_is_named(out: Path, name: str) -> None:
    file, edit = EDITS[name]
    (out / file).write_text(edit((out / file).read_text()))
    with pytest.raises(KvcError, match=rf"{file}.*KVC622"):
        ResultFiles(out)


def test_a_row_that_lost_stretches_is_measured_again(out: Path) -> None:
    lines = (out / "positions.csv").read_text().splitlines(keepends=True)
    (out / "positions.csv").write_text("".join(lines[:-1]))
    assert set(ResultFiles(out).found) == {"one"}
