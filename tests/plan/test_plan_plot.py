"""`kvc plan --plot`: the numbers that are drawn, and the file."""

import os
import struct
import subprocess
import sys

import pytest

from kvc.diagnostics import KvcError
from kvc.plan import make_plan
from kvc.plan.capacity import bytes_for_tokens
from kvc.report.files import write_whole
from kvc.report.plot import write_plot
from kvc.report.plot_data import Subject, common_length, curves, stacks
from kvc.specs import load_spec

NAMES = ["llama-3.1-8b-bf16", "llama-3.1-8b-fp8", "gpt-oss-20b", "deepseek-v3", "deepseek-v4", "qwen3-next"]


def subject(name):
    spec = load_spec(name)
    return Subject(make_plan(spec), spec.target.max_seq_len)


@pytest.fixture(scope="module")
def subjects():
    return [subject(name) for name in NAMES]


def test_bars_are_the_bytes_of_one_sequence(subjects):
    length = common_length(subjects)
    totals = [sum(column) for column in zip(*(stack.nbytes for stack in stacks(subjects)), strict=True)]
    assert length == 32_768
    assert totals == [bytes_for_tokens(one.plan, length) for one in subjects]


def test_kinds_of_bytes(subjects):
    found = {stack.label: dict(zip(NAMES, stack.nbytes, strict=True)) for stack in stacks(subjects)}
    assert found["rows, bf16"]["llama-3.1-8b-bf16"] == 131_072 * 32_768
    assert found["rows, fp8"]["llama-3.1-8b-fp8"] == 65_536 * 32_768
    assert found["windows"]["gpt-oss-20b"] == 4_718_592
    assert found["twins"]["deepseek-v3"] == 15_740_928
    assert found["recurrent state"]["qwen3-next"] == 77_266_944
    assert found["compressor state"]["deepseek-v4"] == 12_058_624 + 1_638_400
    assert found["block scales"]["deepseek-v3"] == 36 * 61 * (32_768 + 64)  # a page more for drafted tokens
    assert found["rounding"]["llama-3.1-8b-bf16"] == 0 < found["rounding"]["deepseek-v4"]
    fixed = {stack.label for stack in stacks(subjects) if stack.fixed}
    assert fixed == {"windows", "twins", "recurrent state", "compressor state"}


def test_curves_are_the_plan_s(subjects):
    for one, curve in zip(subjects, curves(subjects), strict=True):
        assert curve.points[-1] == (one.max_seq_len, bytes_for_tokens(one.plan, one.max_seq_len))
        assert curve.points[0] == (1, bytes_for_tokens(one.plan, 1))
        assert (curve.name, curve.fixed_bytes) == (one.plan.name, one.plan.bytes_per_sequence)


# ---- the file ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "names", [["gpt-oss-20b"], ["--compare", "tiny-fp8", "tiny-mixed"], ["tiny-fp8", "tiny-mixed"]]
)
def test_a_plot_beside_the_answer(names, run_kvc, folder):
    pytest.importorskip("matplotlib")
    code, out, err = run_kvc("plan", *names, "--plot", "plan.png")
    assert (code, err) == (0, "wrote plan.png\n")
    assert out == run_kvc("plan", *(names if len(names) == 1 else ["--compare", "tiny-fp8", "tiny-mixed"]))[1]
    content = (folder / "plan.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", content[16:24]) == (1200, 600)
    assert os.listdir(folder) == ["plan.png"]


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_other_formats_and_equal_files(name, start, folder):
    pytest.importorskip("matplotlib")
    write_plot([subject("tiny-mixed")], folder / name)
    first = (folder / name).read_bytes()
    write_plot([subject("tiny-mixed")], folder / name)
    assert first.startswith(start)
    assert (folder / name).read_bytes() == first


@pytest.mark.parametrize("name", ["plan.jpeg", "plan", ".png", "-", "plan.png.txt"])
def test_another_extension_is_a_finding(name, run_kvc, folder):
    code, out, err = run_kvc("plan", "tiny-fp8", "--plot", name)
    assert (code, out) == (1, "")
    assert err.startswith("KVC208 ") and "= help: end the name in .png, .svg, .pdf" in err


@pytest.mark.parametrize("place", ["no/such/plan.png", "folder.png", "file/plan.png"])
def test_an_unwritable_place_is_a_finding_and_leaves_nothing(place, run_kvc, folder):
    pytest.importorskip("matplotlib")
    (folder / "folder.png").mkdir()
    (folder / "file").touch()
    code, out, err = run_kvc("plan", "tiny-fp8", "--plot", place)
    assert (code, out) == (1, "")
    assert err.startswith(f"{place}:1:1: KVC210 cannot write: ")
    assert sorted(os.listdir(folder)) == ["file", "folder.png"]


def test_without_matplotlib_a_finding_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(KvcError) as caught:
        write_plot([subject("tiny-fp8")], tmp_path / "plan.png")
    (found,) = caught.value.diagnostics
    assert (found.code, found.help) == ("KVC209", "pip install 'kvc[plot]'")
    assert not os.listdir(tmp_path)


def test_no_plot_no_matplotlib():
    probe = "import sys; from kvc.cli.plan import plan; plan(['tiny-fp8']); print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_file_is_replaced_whole_or_stays(monkeypatch, tmp_path):
    path = tmp_path / "a.png"
    write_whole(path, b"old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["a.png"])


def test_a_new_file_has_the_usual_permissions(tmp_path):
    write_whole(tmp_path / "a", b"")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
