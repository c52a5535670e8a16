"""What the reader refuses: every finding has a place, a code and a hint."""

import time
from pathlib import Path

import pytest

from kvc.diagnostics import Diagnostic, KvcError
from kvc.specs import load_spec, load_spec_text
from kvc.specs.yaml_reader import MAX_BYTES, MAX_DEPTH, parse_document


def findings(text: str) -> list[Diagnostic]:
    with pytest.raises(KvcError) as caught:
        load_spec_text(text, "bad.yaml")
    return list(caught.value.diagnostics)


def only(text: str, code: str) -> Diagnostic:
    found = [finding for finding in findings(text) if finding.code == code]
    assert len(found) == 1, findings(text)
    assert found[0].source is not None
    return found[0]


def place(found: Diagnostic) -> tuple[str, int, int]:
    assert found.source
    return found.source.path, found.source.line, found.source.column


# text, code, line, column, part of the message, part of the help
REFUSED = {
    "duplicate key": ("kvc: 1\nname: a\nname: b\n", "KVC008", 3, 1, "`name` is given twice", "line 2"),
    "duplicate key in a flow mapping": ("cache: {a: 1, 'a': 2}", "KVC008", 1, 15, "`a`", "line 1"),
    "yes and no": ("kvc: 1\nname: no\n", "KVC011", 2, 7, "`no` is a boolean in YAML 1.1", 'quote it: "no"'),
    "off": ("name: OFF\n", "KVC011", 1, 7, "`OFF`", "write false"),
    "exponent without a dot": ("theta: 1e3", "KVC011", 1, 8, "`1e3` is text in YAML 1.1", "write 1000"),
    "exponent without a sign": ("theta: 1.5e3", "KVC011", 1, 8, "`1.5e3`", "write 1500"),
    "small exponent": ("theta: 5e-5", "KVC011", 1, 8, "`5e-5`", "write 0.00005"),
    "large exponent": ("theta: 1e30", "KVC011", 1, 8, "`1e30`", "write 1.0e+30"),
    "base 60": ("a: {b: 12:30}", "KVC011", 1, 8, "`12:30` is a base-60 number", 'quote it if it is text: "12:30"'),
    "octal": ("heads: 010", "KVC011", 1, 8, "`010` is an octal", "write the decimal number: 8"),
    "octal of YAML 1.2": ("heads: 0o17", "KVC011", 1, 8, "`0o17`", "15"),
    "hexadecimal": ("heads: 0x20", "KVC011", 1, 8, "`0x20`", "32"),
    "leading zero": ("heads: 089", "KVC011", 1, 8, "`089`", "write 89"),
    "underscores": ("heads: 1_000", "KVC011", 1, 8, "`1_000`", "write 1000"),
    "date": ("name: 2024-01-01", "KVC011", 1, 7, "`2024-01-01` is a date", "quote it"),
    "infinity": ("theta: .inf", "KVC011", 1, 8, "`.inf`", "finite"),
    "endless integer": (f"heads: {'9' * 5000}", "KVC011", 1, 8, "too large", ""),
    "trap as a key": ("on: 1", "KVC011", 1, 1, "`on`", "quote it"),
    "object tag": ("name: !!python/object:os.system x", "KVC009", 1, 7, "`!!python/object:os.system`", "remove"),
    "tag on a mapping": ("model: !include {a: 1}", "KVC009", 1, 8, "`!include`", "remove"),
    "conversion tag": ('heads: !!int "3"', "KVC009", 1, 8, "`!!int`", "remove"),
    "merge key": ("a: &a {b: 1}\nc:\n  <<: *a\n", "KVC010", 3, 3, "merge keys", "write the fields out"),
    "number as a key": ("a: {layers: 0-2,30, b: 1}", "KVC013", 1, 17, "not `30`", 'layers: "0-2,30"'),
    "list as a key": ("? [a, b]\n: 1\n", "KVC013", 1, 3, "not a list or mapping", "one word"),
    "two documents": ("kvc: 1\n---\nkvc: 1\n", "KVC007", 2, 1, "second document", "its own file"),
    "empty file": ("", "KVC006", 1, 1, "holds no spec", "kvc: 1"),
    "only comments": ("# kvc\n\n", "KVC006", 1, 1, "holds no spec", "kvc: 1"),
    "not a mapping": ("- kvc: 1\n", "KVC022", 1, 1, "a spec is a mapping", "kvc: 1"),
    "just text": ("hello", "KVC022", 1, 1, "a spec is a mapping", "kvc: 1"),
    "open bracket": ("kvc: 1\na: [1, 2\n", "KVC005", 2, 4, "malformed YAML", "bracket"),
    "tab": ("model:\n\tdtype: bf16\n", "KVC005", 2, 1, "malformed YAML", "spaces, not tabs"),
    "two colons": ("name: a: b\n", "KVC005", 1, 8, "mapping values are not allowed", "quote it"),
    "alias without anchor": ("a: *b\n", "KVC005", 1, 4, "`*b` has no anchor", "define the anchor"),
    "alias inside its anchor": ("a: &a [*a]\n", "KVC005", 1, 8, "`*a` has no anchor", "not around it"),
    "control character": ("name: a\x00b\n", "KVC003", 1, 8, "U+0000", "spec at all"),
    "deep nesting": ("a: " + "[" * 200, "KVC012", 1, MAX_DEPTH + 4, "nested deeper", "bracket"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, code, line, column, message, help = REFUSED[case]
    found = only(text, code)
    assert place(found) == ("bad.yaml", line, column)
    assert message in found.message
    assert help in found.help
    assert len(found.message) < 200 and len(found.help) < 200


def test_nesting_cannot_exhaust_the_stack() -> None:
    assert only("a: " + "[" * 100_000, "KVC012").help
    assert only("a: " + "{a: " * 100_000, "KVC012").help
    assert only("\n".join(" " * depth + "a:" for depth in range(500)), "KVC012").help


def test_alias_bomb_is_stopped_quickly() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    started = time.monotonic()
    found = only(bomb, "KVC004")
    assert time.monotonic() - started < 2
    assert "100,000 values" in found.message and found.source and found.source.line > 10


def test_a_few_aliases_are_fine() -> None:
    root = parse_document("a: &x {b: 1}\nc: *x\nd: [*x, *x]\n", "x").root
    assert root.plain() == {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 1}]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("0.5", 0.5),
        ("1.0e+3", 1000.0),
        ("true", True),
        ("~", None),
        ("", None),
        ("0-2", "0-2"),
        ("139GiB", "139GiB"),
        ("sm_90", "sm_90"),
        ('"no"', "no"),
        ("'12:30'", "12:30"),
        ("none", "none"),
    ],
)
def test_what_plain_values_mean(text: str, value: object) -> None:
    read = parse_document(f"a: {text}\n", "x")
    assert read.root.plain() == {"a": value} and not read.findings
    assert type(read.root.plain()["a"]) is type(value)


def write(folder: Path, data: bytes) -> Path:
    file = folder / "bad.yaml"
    file.write_bytes(data)
    return file


@pytest.mark.parametrize(
    ("data", "code", "line", "column", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\x00", "KVC003", 1, 1, "byte 0x89"),
        ("kvc: 1\nname: caf\xe9\n".encode("latin-1"), "KVC003", 2, 10, "byte 0xe9"),
        ("kvc: 1".encode("utf-16"), "KVC003", 1, 1, "byte 0xff"),
        (b"GGUF\x03\x00\x00\x00", "KVC003", 1, 5, "U+0003"),
        (b"#" * (MAX_BYTES + 1), "KVC004", 1, 1, "larger than 1,048,576 bytes"),
        (b"", "KVC006", 1, 1, "no spec"),
    ],
)
def test_files_that_are_no_specs(tmp_path: Path, data: bytes, code: str, line: int, column: int, message: str) -> None:
    file = write(tmp_path, data)
    with pytest.raises(KvcError) as caught:
        load_spec(file)
    (found,) = caught.value.diagnostics
    assert (found.code, place(found)) == (code, (str(file), line, column))
    assert message in found.message and found.help


def test_missing_files_and_directories(tmp_path: Path) -> None:
    for argument, code in ((tmp_path / "absent.yaml", "KVC001"), (tmp_path, "KVC002"), ("a\0b", "KVC001")):
        with pytest.raises(KvcError) as caught:
            load_spec(argument)
        (found,) = caught.value.diagnostics
        assert found.code == code and found.help


def test_a_near_library_name_is_suggested() -> None:
    with pytest.raises(KvcError) as caught:
        load_spec("lama-3.1-8b-fp8")
    assert "did you mean `llama-3.1-8b-fp8`?" in caught.value.diagnostics[0].help


def test_a_utf8_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    library = Path(load_spec.__code__.co_filename).parent / "library" / "tiny-fp8.yaml"
    windows = b"\xef\xbb\xbf" + library.read_bytes().replace(b"\n", b"\r\n")
    assert load_spec(write(tmp_path, windows)).digest == load_spec("tiny-fp8").digest
