"""Run the command line in this process."""

import sys
from collections.abc import Callable

import pytest

from kvc.cli import main


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
