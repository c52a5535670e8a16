"""The frame of the command line: exit codes, crashes, pipes, and what start-up leaves out."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from kvc.cli import COMMANDS, load_command
from kvc.cli.guard import guarded
from kvc.diagnostics import Source, fail

ROOT = Path(__file__).parents[2]


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def imported_by(arguments: list[str]) -> set[str]:
    """Top-level packages that a command line leaves in `sys.modules`."""
    code = f"""
import sys
sys.argv = ["kvc", *{arguments}]
from kvc.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print("MODULES", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    return set(python(code).rpartition("MODULES ")[2].split())


def test_check_and_plan_run_without_torch() -> None:
    heavy = {"torch", "triton", "transformers", "numpy"}
    assert not imported_by(["check", "tiny-fp8"]) & heavy
    assert not imported_by(["plan", "tiny-fp8"]) & heavy


@pytest.mark.parametrize("spec", ["tiny-fp8", "tiny-mla-fp8"])
def test_compiling_imports_no_symbolic_shapes(spec: str, tmp_path: Path) -> None:
    """sympy costs a second, dynamo two, and export brings both."""
    loaded = imported_by(["compile", spec, "-o", str(tmp_path / "out")])
    assert "torch" in loaded and not loaded & {"sympy", "transformers"}


def test_start_up_and_help_import_neither_pydantic_nor_a_command() -> None:
    assert not imported_by(["--help"]) & {"torch", "pydantic", "yaml"}


def test_plain_parts_of_specs_and_plan_import_no_pydantic() -> None:
    modules = "kvc, kvc.specs, kvc.specs.resolved, kvc.specs.sizes, kvc.plan.types, kvc.capabilities"
    assert python(f"import sys, {modules}; print('pydantic' in sys.modules)") == "False\n"


def test_module_run_prints_the_version() -> None:
    done = subprocess.run([sys.executable, "-m", "kvc", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:4], done.stderr) == (0, "kvc ", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_has_its_file_and_help(name: str) -> None:
    command = load_command(name)
    assert command.help and command.help.strip().endswith((".", ")"))
    assert (ROOT / "kvc" / "cli" / f"{name}.py").is_file()


def test_usage_errors_exit_with_2(run_kvc: Callable[..., tuple[int, str, str]]) -> None:
    for arguments in (["chekc"], ["check"], ["check", "--output-format", "xml", "tiny-fp8"], ["explain", "KVC999"], []):
        code, _, err = run_kvc(*arguments)
        assert code == 2 and "Traceback" not in err


def crash() -> None:
    raise ValueError("two\nlines")


def test_a_crash_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVC_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as stopped:
        guarded(crash)()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "kvc: internal error: ValueError: two lines (KVC_TRACEBACK=1 shows where)\n"


def test_a_crash_shows_its_traceback_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVC_TRACEBACK", "1")
    with pytest.raises(SystemExit) as stopped:
        guarded(crash)()
    assert stopped.value.code == 2 and "Traceback" in capsys.readouterr().err


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def test_interrupts_and_findings_have_their_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    finding = fail("KVC101", "unknown encoding `fp9`", source=Source("a.yaml", 3, 7), help="did you mean `fp8`?")
    for error, code in ((KeyboardInterrupt(), 130), (finding, 1)):
        with pytest.raises(SystemExit) as stopped:
            guarded(raising(error))()
        assert stopped.value.code == code
    assert capsys.readouterr().err == ("a.yaml:3:7: KVC101 unknown encoding `fp9`\n  = help: did you mean `fp8`?\n\n")


def test_usage_errors_of_a_command_are_left_to_typer() -> None:
    with pytest.raises(typer.BadParameter):
        guarded(raising(typer.BadParameter("no")))()


def test_a_command_may_return_its_exit_code() -> None:
    with pytest.raises(SystemExit) as stopped:
        guarded(lambda: 1)()
    assert stopped.value.code == 1
    assert guarded(lambda: None)() is None


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "kvc", "schema"], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("arguments", ["--version", "--help", "plan --help", "explain"])
def test_output_that_cannot_be_written_is_no_traceback(arguments: str) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kvc", *arguments.split()]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


def test_a_closed_stdout_is_no_crash() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kvc explain >&-"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
