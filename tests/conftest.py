"""Options and fixtures of the whole suite."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kvc.cli import main

# Kernels run interpreted where there is no GPU. Before anything imports triton: it reads the variable once.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# The graphs of tests are tiny: threads cost more than they save, and several test processes share the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# One for all runs: what inductor compiles first on a machine costs half a minute, its own headers.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "kvc-tests-inductor"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept-graphs", action="store_true", help="rewrite the golden graphs in tests/graphs/golden")
    parser.addoption("--accept-docs", action="store_true", help="write real output into the console blocks of the docs")


def pytest_configure(config: pytest.Config) -> None:
    for option in ("--accept-graphs", "--accept-docs"):
        if config.getoption(option) and os.environ.get("CI"):
            raise pytest.UsageError(f"{option} is forbidden in CI: what is shown changes in a reviewed commit")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture
def accept_graphs(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept-graphs"))


@pytest.fixture
def run_kvc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """``run_kvc("check", "a.yaml")`` -> exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kvc", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        output = capsys.readouterr()
        return int(stopped.value.code or 0), output.out, output.err

    return run


@pytest.fixture(scope="session")
def checkout_path() -> str:
    """PYTHONPATH for a subprocess that runs elsewhere: this checkout first."""
    return os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
