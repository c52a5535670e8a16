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
    code, out, err = run_kvc("check", *names)
    assert (code, err) == (0, "") and f"{len(names)} specs checked: no findings, " in out
    assert "KVC" not in out.replace("KVC145 note: ", "")
    assert run_kvc("check", "tiny-fp8", "--output-format", "json") == (0, "[]\n", "")
    assert run_kvc("check", "tiny-fp8", "--output-format", "github") == (0, "", "")


NOTES = """\
mixed.yaml:8:7: KVC145 note: layers 1-2 (gqa window 64) have no twin and keep a plain cache in `bf16`: a window holds \
its last rows only
  |
8 |     - {kind: gqa, repeat: 2, heads: 8, kv_heads: 4, head_dim: 16, rope: none, window: 64}
  |       ^
  = help: the high encoding is `bf16`; `encoding` of an override chooses another

mixed.yaml:13:3: KVC147 note: everything is retained: first 500 + last 524 tokens are at least max_seq_len, 1,024
   |
13 |   retain: {first: 500, last: 524, unit: page, encoding: bf16}
   |   ^^^^^^
   = help: a plain cache in `bf16` reads the same rows in fewer bytes

mixed.yaml:13:3: KVC148 note: whole pages of 16 tokens are retained: the first 512 and, by the length, the last 524 to \
539
   |
13 |   retain: {first: 500, last: 524, unit: page, encoding: bf16}
   |   ^^^^^^
   = help: write multiples of 16, or `unit: token` for 500 and 524

1 spec checked: no findings, 3 notes. `kvc explain CODE` says more.
"""

MIXED = """\
kvc: 1
name: mixed
model:
  dtype: bf16
  max_position: 1024
  layers:
    - {kind: gqa, heads: 8, kv_heads: 4, head_dim: 16, rope: none}
    - {kind: gqa, repeat: 2, heads: 8, kv_heads: 4, head_dim: 16, rope: none, window: 64}
cache:
  encoding: nvfp4
  tokens_per_page: 16
  scales: {source: unit}
  retain: {first: 500, last: 524, unit: page, encoding: bf16}
target: {device: cpu, max_sequences: 4, max_seq_len: 1024, max_tokens: 256}
"""


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mixed.yaml").write_text(MIXED)
    return "mixed.yaml"


def test_notes(mixed: str, run_kvc: Run) -> None:
    assert run_kvc("check", mixed) == (0, NOTES, "")


def test_notes_are_told_from_errors(mixed: str, run_kvc: Run) -> None:
    code, out, _ = run_kvc("check", mixed, "--output-format", "json")
    assert code == 0 and [found["severity"] for found in json.loads(out)] == ["note"] * 3
    code, out, _ = run_kvc("check", mixed, "--output-format", "github")
    assert code == 0 and all(line.startswith("::notice file=mixed.yaml,line=") for line in out.splitlines())


def test_plans_cite_the_lines_of_notes(mixed: str, run_kvc: Run) -> None:
    code, out, err = run_kvc("plan", mixed)
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "keep a plain cache in bf16: a window holds its last rows only (mixed.yaml:8)" in text
    assert "note: everything is retained: first 500 + last 524 tokens are at least max_seq_len, 1,024 (mixed" in text


def test_compiling_says_the_notes(mixed: str, run_kvc: Run) -> None:
    lines = Path(mixed).read_text().splitlines()
    Path("full.yaml").write_text("\n".join(line for line in lines if "window" not in line))
    code, out, err = run_kvc("compile", "full.yaml", "-o", "out")
    assert code == 0 and "full.yaml:12:3: KVC147 note: everything is retained" in err
    assert "KVC" not in out and out.endswith("wrote out: 4 graphs for 1 layers\n")


REFUSAL = """\
refused.yaml:13:3: KVC144 attention of a gqa layer cannot read a twin in `fp32`: dense attention reads twins of one \
plane a field, in a dtype of its matrix products
   |
13 |   retain: {first: 500, last: 524, unit: page, encoding: fp32}
   |   ^^^^^^
   = help: nearest: a twin in `bf16` (supported twins: `bf16`, `fp8`); or remove `retain`

1 spec checked: 1 finding in 1 spec. `kvc explain CODE` says more.
"""


def test_a_refused_twin(mixed: str, run_kvc: Run) -> None:
    Path("refused.yaml").write_text(Path(mixed).read_text().replace("encoding: bf16}", "encoding: fp32}"))
    assert run_kvc("check", "refused.yaml") == (1, REFUSAL, "")


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
