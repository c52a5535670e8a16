"""`kvc inspect`: what is asked for is shown, or refused."""

from collections.abc import Callable
from pathlib import Path

from kvc.compiler import compile_spec


def test_options_are_never_ignored(run_kvc: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    out = str(compile_spec("tiny-fp8").write(tmp_path / "out"))
    assert run_kvc("inspect", out, "--json", "--graph", "all")[0] == 2
    code, shown, error = run_kvc("inspect", out, "--graph", "")
    assert (code, shown) == (1, "") and "KVC406" in error
