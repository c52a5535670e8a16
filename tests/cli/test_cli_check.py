"""`kvc check` as a user sees it."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from kvc.cli.errors import print_findings, render_github
from kvc.diagnostics import Diagnostic, Source
from kvc.specs import library_specs

Run = Callable[..., tuple[int, str, str]]

BAD = """\
kvc: 1
name: bad
model:
  dtype: fp32
  max_position: 256
  layers:
    - {kind: gqa, heads: 6, kv_heads: 4, head_dim: 16, rope: none}
cache:
  encoding: fp9
  tokens_per_page: 48
target: {device: cpu, max_sequences: 4, max_seq_len: 512, max_tokens: 256}
"""

TEXT = """\
bad.yaml:7:39: KVC104 6 query heads do not divide into 4 KV heads
  |
7 |     - {kind: gqa, heads: 6, kv_heads: 4, head_dim: 16, rope: none}
  |                                       ^
  = help: nearest divisors of 6: `2`, `3`, `6`

bad.yaml:9:13: KVC101 unknown encoding `fp9`
  |
9 |   encoding: fp9
  |             ^^^
  = help: did you mean `fp8`? supported: `fp32`, `bf16`, `fp8`, `nvfp4`, `nvfp4_rope_fp8`, `nvfp4_residual`, \
`fp8_ds_mla`, `fp8_ds_mla_v4`

bad.yaml:10:20: KVC106 pages of 48 tokens are not supported
   |
10 |   tokens_per_page: 48
   |                    ^^
   = help: nearest: `32`, `64` (a power of two from 1 to 1024)

bad.yaml:11:54: KVC116 sequences of 512 tokens, but the model has 256 positions
   |
11 | target: {device: cpu, max_sequences: 4, max_seq_len: 512, max_tokens: 256}
   |                                                      ^^^
   = help: write at most 256

2 specs checked: 4 findings in 1 spec. `kvc explain CODE` says more.
"""


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(BAD)
    return "bad.yaml"


def test_text(bad: str, run_kvc: Run) -> None:
    assert run_kvc("check", bad, "tiny-fp8") == (1, TEXT, "")


def test_no_findings(run_kvc: Run) -> None:
    names = list(library_specs())
    assert run_kvc("check", *names) == (0, f"{len(names)} specs checked: no findings.\n", "")
    assert run_kvc("check", "tiny-fp8", "--output-format", "json") == (0, "[]\n", "")
    assert run_kvc("check", "tiny-fp8", "--output-format", "github") == (0, "", "")


def test_json(bad: str, run_kvc: Run) -> None:
    code, out, _ = run_kvc("check", bad, "--output-format", "json")
    found = json.loads(out)
    assert code == 1 and len(found) == 4
    assert found[1] == {
        "code": "KVC101",
        "severity": "error",
        "message": "unknown encoding `fp9`",
        "file": "bad.yaml",
        "line": 9,
        "column": 13,
        "path": "cache.encoding",
        "help": "did you mean `fp8`? supported: `fp32`, `bf16`, `fp8`, `nvfp4`, `nvfp4_rope_fp8`, `nvfp4_residual`, "
        "`fp8_ds_mla`, `fp8_ds_mla_v4`",
    }


def test_github(bad: str, run_kvc: Run) -> None:
    code, out, _ = run_kvc("check", bad, "--output-format", "github")
    assert code == 1 and len(out.splitlines()) == 4
    assert out.splitlines()[2] == (
        "::error file=bad.yaml,line=10,col=20,title=KVC106::pages of 48 tokens are not supported "
        "(nearest: `32`, `64` (a power of two from 1 to 1024))"
    )


def test_github_escapes() -> None:
    found = Diagnostic("KVC001", "100%\nsure", Source("a,b:c.yaml"))
    assert render_github(found) == "::error file=a%2Cb%3Ac.yaml,line=1,col=1,title=KVC001::100%25%0Asure"


def test_missing_binary_and_directory(tmp_path: Path, run_kvc: Run) -> None:
    weights = tmp_path / "weights.yaml"
    weights.write_bytes(b"\x80\x81\x00" * 100)
    code, out, err = run_kvc("check", str(tmp_path / "absent.yaml"), str(weights), str(tmp_path))
    assert (code, err) == (1, "")
    assert [word for word in out.split() if word.startswith("KVC")] == ["KVC001", "KVC003", "KVC002"]
    assert out.isprintable() or all(line.isprintable() for line in out.splitlines())


def test_names_that_are_no_text_are_shown_escaped(run_kvc: Run) -> None:
    code, out, err = run_kvc("check", "b\udcff.yaml")
    assert (code, err) == (1, "") and "b\\udcff.yaml:1:1: KVC001" in out


class Terminal(StringIO):
    """Text output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variable", "value", "coloured"), [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False)]
)
def test_colours(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, coloured: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    terminal = Terminal()
    print_findings([Diagnostic("KVC001", "no", Source("a.yaml"))], file=terminal)
    assert ("\033[" in terminal.getvalue()) == coloured


@pytest.mark.parametrize(
    ("text", "column", "line", "marker"),
    [
        ("a:\t{b: 'x y'}", 8, "a:\t{b: 'x y'}", "  \t    ^^^^^"),
        ("é: [1,   2]", 10, "é: [1,   2]", "         ^"),
        ("a: 1", 5, "a: 1", "    ^"),
    ],
)
def test_carets(tmp_path: Path, text: str, column: int, line: str, marker: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text, encoding="utf-8")
    out = StringIO()
    print_findings([Diagnostic("KVC001", "no", Source(str(file), 1, column))], file=out)
    assert out.getvalue().splitlines()[1:4] == ["  |", f"1 | {line}", f"  | {marker}"]


def test_long_lines_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("x" * 5000 + ": " + "y" * 5000)
    out = StringIO()
    print_findings([Diagnostic("KVC001", "no", Source(str(file), 1, 5003))], file=out)
    assert max(map(len, out.getvalue().splitlines()[1:])) < 200
