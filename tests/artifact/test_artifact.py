"""Artifacts: written whole or not at all, byte-equal for equal specs, and never trusted when read."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvc.artifact import read_artifact, write_artifact
from kvc.compiler import Compiled, compile_spec
from kvc.diagnostics import KvcError
from kvc.graphs.diff import diff_programs
from kvc.runtime.loader import load


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_spec("tiny-fp8")


@pytest.fixture
def written(compiled: Compiled, tmp_path: Path) -> Path:
    return compiled.write(tmp_path / "out")


def files(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def code_of(call, *args, **kwargs) -> str:
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    (found,) = caught.value.diagnostics
    assert found.help
    return found.code


def test_reads_back_what_was_written(compiled: Compiled, written: Path):
    artifact = read_artifact(written)
    assert artifact.plan == compiled.artifact.plan
    assert artifact.manifest() == compiled.artifact.manifest()
    assert diff_programs(artifact.program, compiled.artifact.program) == ()


def test_two_compilations_give_equal_bytes(written: Path, tmp_path: Path, checkout_path: str):
    """The second one in a new process with another hash seed and another working directory."""
    script = "from kvc.compiler import compile_spec; compile_spec('tiny-fp8').write('second')"
    env = {"PYTHONPATH": checkout_path, "PYTHONHASHSEED": "77", "PATH": ""}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=env)
    assert files(tmp_path / "second") == files(written)


def test_holds_no_path_of_the_machine(compiled: Compiled, tmp_path: Path):
    spec = tmp_path / "my-spec.yaml"
    library = Path(__file__).parents[2] / "specs" / "library" / "tiny-fp8.yaml"
    spec.write_text(library.read_text())
    out = compile_spec(spec).write(tmp_path / "out")
    for name, content in files(out).items():
        assert str(tmp_path).encode() not in content, name
        assert b"site-packages" not in content, name


def test_an_existing_artifact_needs_force(compiled: Compiled, written: Path):
    before = files(written)
    (written / "stray").write_text("from an older version")
    assert code_of(write_artifact, compiled.artifact, written) == "KVC401"
    write_artifact(compiled.artifact, written, force=True)
    assert files(written) == before
    assert [path.name for path in written.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling"])
def test_what_is_not_an_artifact_is_never_replaced(compiled: Compiled, written: Path, kind: str, force: bool):
    target = written.parent / "taken"
    if kind == "file":
        target.write_text("precious")
    elif kind == "folder":
        target.mkdir()
        (target / "precious").write_text("")
    else:
        target.symlink_to(written if kind == "link" else "nowhere")
    assert code_of(write_artifact, compiled.artifact, target, force) == "KVC401"
    assert target.is_symlink() or target.is_file() or (target / "precious").exists()


def test_an_unwritable_place_is_named(compiled: Compiled, tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert code_of(write_artifact, compiled.artifact, tmp_path / "file" / "out") == "KVC402"


@pytest.mark.parametrize("force", [False, True])
def test_a_foreign_folder_with_a_manifest_is_never_replaced(compiled: Compiled, tmp_path: Path, force: bool):
    (tmp_path / "out" / "graphs").mkdir(parents=True)
    (tmp_path / "out" / "manifest.json").write_text('{"name": "a web application"}')
    (tmp_path / "out" / "graphs" / "notes.txt").write_text("precious")
    before = files(tmp_path)
    assert code_of(write_artifact, compiled.artifact, tmp_path / "out", force) == "KVC401"
    assert files(tmp_path) == before


@pytest.mark.parametrize("damaged", ["manifest.json", "graphs"])
def test_a_damaged_artifact_can_be_replaced(compiled: Compiled, written: Path, damaged: str):
    before = files(written)
    (written / damaged).write_text("") if damaged == "manifest.json" else shutil.rmtree(written / damaged)
    write_artifact(compiled.artifact, written, force=True)
    assert files(written) == before


def test_leftovers_of_a_dead_process_with_this_number_are_no_part_of_the_artifact(compiled: Compiled, written: Path):
    before = files(written)
    for what in ("partial", "replaced"):
        stale = written.parent / f".out.{what}-{os.getpid()}" / "graphs" / "stale.txt"
        stale.parent.mkdir(parents=True)
        stale.write_text("")
    compiled.write(written, force=True)
    assert files(written) == before
    assert [path.name for path in written.parent.iterdir()] == ["out"]


def test_a_faster_writer_keeps_its_artifact(compiled: Compiled, written: Path, monkeypatch: pytest.MonkeyPatch):
    before, rename = files(written), Path.rename

    def fail_to_rename(self, target):
        if ".partial-" in self.name:
            shutil.copytree(written.parent / f".out.replaced-{os.getpid()}", target)
            raise OSError(39, "Directory not empty")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_to_rename)
    assert code_of(write_artifact, compiled.artifact, written, force=True) == "KVC402"
    assert files(written) == before
    assert [path.name for path in written.parent.iterdir()] == ["out"]


KILLED = """
import os, signal, sys
from pathlib import Path
from kvc.compiler import compile_spec
compiled, calls = compile_spec("tiny-fp8"), [0]
original = getattr(Path, sys.argv[1])
def killer(self, *args, **kwargs):
    calls[0] += 1
    if calls[0] > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *args, **kwargs)
setattr(Path, sys.argv[1], killer)
compiled.write("out", force=True)
"""


@pytest.mark.parametrize(("method", "survived"), [("write_text", 0), ("write_text", 3), ("rename", 0)])
def test_a_kill_leaves_nothing_under_the_final_name(
    compiled: Compiled, tmp_path: Path, checkout_path: str, method: str, survived: int
):
    env = {"PYTHONPATH": checkout_path, "PATH": ""}
    command = [sys.executable, "-c", KILLED, method, str(survived)]
    died = subprocess.run(command, cwd=tmp_path, env=env)
    assert died.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    compiled.write(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "leftovers of the killed writer are removed"


OTHERS = [".out.backup-999999999", ".out.partial-99999999999999999999", ".out.partial-x", ".xout.partial-999999999"]


@pytest.mark.parametrize("name", OTHERS)
def test_folders_beside_it_are_left_alone(compiled: Compiled, tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    for target in ("out", "*out"):
        compiled.write(tmp_path / target)
    assert (tmp_path / name).is_dir()


def test_a_writer_of_another_user_is_left_alone(compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    (tmp_path / ".out.partial-1").mkdir()
    monkeypatch.setattr("os.kill", refuse)
    compiled.write(tmp_path / "out")
    assert (tmp_path / ".out.partial-1").is_dir()


def test_a_replacement_that_fails_leaves_the_old_artifact(
    compiled: Compiled, written: Path, monkeypatch: pytest.MonkeyPatch
):
    before, rename = files(written), Path.rename

    def fail_partial(path: Path, target: Path) -> Path:
        if "partial" in path.name:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_partial)
    assert code_of(write_artifact, compiled.artifact, written, force=True) == "KVC402"
    assert files(written) == before
    assert [path.name for path in written.parent.iterdir()] == ["out"]


def edit_manifest(directory: Path, change) -> None:
    path = directory / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda d: shutil.rmtree(d), "KVC403"),
        (lambda d: (d / "manifest.json").unlink(), "KVC403"),
        (lambda d: (d / "manifest.json").write_text("{}"), "KVC403"),
        (lambda d: (d / "manifest.json").write_text("[1, 2]"), "KVC403"),
        (lambda d: (d / "manifest.json").write_text(""), "KVC405"),
        (lambda d: (d / "manifest.json").write_bytes(b"\xff\xfe\x00\x81"), "KVC405"),
        (lambda d: (d / "manifest.json").write_text("[" * 100_000), "KVC405"),
        (lambda d: (d / "manifest.json").write_bytes((d / "manifest.json").read_bytes()[:-200]), "KVC405"),
        (lambda d: edit_manifest(d, lambda m: m.update(format=99)), "KVC404"),
        (lambda d: edit_manifest(d, lambda m: m.update(format=99, versions=None)), "KVC404"),
        (lambda d: edit_manifest(d, lambda m: m.pop("plan")), "KVC405"),
        (lambda d: edit_manifest(d, lambda m: m["program"].update(table_width=1)), "KVC405"),
        (lambda d: (d / "graphs" / "gqa0.context.txt").unlink(), "KVC405"),
        (lambda d: (d / "graphs" / "gqa0.context.txt").write_text("graph g\n"), "KVC405"),
        (lambda d: (d / "graphs" / "gqa0.context.txt").write_bytes(b"\xff"), "KVC405"),
        (lambda d: shutil.rmtree(d / "graphs"), "KVC405"),
    ],
)
def test_damage_is_named(written: Path, damage, code: str):
    damage(written)
    assert code_of(read_artifact, written) == code


def test_a_missing_directory_is_called_missing(tmp_path: Path):
    with pytest.raises(KvcError, match="nowhere does not exist"):
        read_artifact(tmp_path / "nowhere")


def test_an_artifact_loads_without_pydantic(written: Path, checkout_path: str):
    script = (
        "import sys; sys.modules['pydantic'] = None\n"
        "import kvc; kvc.load('out').plan.name\n"
        "assert 'yaml' not in sys.modules and 'transformers' not in sys.modules"
    )
    env = {"PYTHONPATH": checkout_path, "PATH": ""}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=written.parent, env=env)


def test_pages_of_any_size_read_back(tmp_path: Path):
    """131,072 tokens in the longest sequence, 1,024 a page: numbers as large as those that stand for dimensions."""
    library = Path(__file__).parents[2] / "specs" / "library" / "llama-3.1-8b-bf16.yaml"
    text = re.sub(r"tokens_per_page: \d+", "tokens_per_page: 1024", library.read_text())
    (tmp_path / "big.yaml").write_text(text)
    compiled = compile_spec(tmp_path / "big.yaml")
    assert compiled.artifact.plan.pools[0].page_bytes == 4 << 20
    assert read_artifact(compiled.write(tmp_path / "out")).manifest() == compiled.artifact.manifest()


def with_its_digest(directory: Path, path: str, value: object) -> None:
    """Change one value of the manifest (`plan/pools/0/id`) and make the digest fit."""
    file = directory / "manifest.json"
    data = json.loads(file.read_text())
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    inside = data
    for part in parents:
        inside = inside[part]
    inside[last] = value
    body = {key: part for key, part in data.items() if key != "digest"}
    data["digest"] = hashlib.sha256(json.dumps(body, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("plan/pools/0/page_bytes", "1536", "plan.pools[0].page_bytes is of another type"),
        ("plan/pools/0/pages_per_slot", True, "plan.pools[0].pages_per_slot is of another type"),
        ("plan/lifecycles/0/coverage/kind", 3, "plan.lifecycles[0].coverage.kind is of another type"),
        ("plan/pools/0/id", 1, "plan.pools: ids are not 0, 1, ..."),
        ("plan/pools/0/lifecycle", 1, "plan.pools[0]: there is no such lifecycle"),
        ("plan/lifecycles/0/pools", [-1], "plan.lifecycles[0]: there is no such pool"),
        ("plan/pools/0/page_bytes", 0, "plan.pools[0]: slot_bytes is not pages_per_slot * page_bytes"),
        ("plan/pool_groups/0/slot_bytes", 1, "plan.pool_groups[0]: the sizes of its slots"),
        ("plan/lifecycles/0/coverage/kind", "all", "plan.lifecycles[0]: a coverage or page size"),
        ("plan/buffers/1/index", 4, "layer 1 has no page in pool 0"),
        ("plan/layer_groups", [], "plan.layer_groups: their layers"),
        ("program/device", "tpu", "program.device is of another type"),
        ("program/bindings/0/constants", [], "program.bindings[0].constants is of another type"),
        ("program/step/context/0/1", [None], "program.step[context][0].dims is of another type"),
        ("program/bindings/1/layer", 0, "layer 0 is bound 2 times"),
        ("program/bindings/0/pools/history", [0, 3], "a layer is bound to a page that the plan does not give it"),
        ("program/constants", {}, "layer 0: scale.k has no constant"),
        ("program/constants/rope.0/params/rope", True, "program.constants[rope.0].params.rope is True"),
        ("program/capture/buckets", [1], "buckets (1,) are not those of the target"),
        ("program/buckets", [], "are not those of the target"),
        ("program/table_width", 1, "program.table_width is not that of the longest sequence"),
        ("spec/values/target/max_tokens", "many", "spec.values.target: limits are numbers"),
        ("spec/digest", "0", "spec: not the one of the plan"),
        ("accepts", {}, "accepts: not the inputs of the graphs"),
    ],
)
def test_contradictions_behind_a_right_digest_are_named(written: Path, path: str, value: object, message: str):
    with_its_digest(written, path, value)
    with pytest.raises(KvcError, match="KVC405") as caught:
        read_artifact(written)
    assert message in str(caught.value)


@pytest.fixture(scope="module")
def latent() -> Compiled:
    return compile_spec("tiny-mla-fp8")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"part": "w_uq"}, "program.constants[weight.1.w_uv].params.part is 'w_uq'"),
        ({"heads": 0}, "program.constants[weight.1.w_uv].params.heads is 0"),
        ({"ranks": True}, "program.constants[weight.1.w_uv].params.ranks is True"),
        ({"latent": "32"}, "program.constants[weight.1.w_uv].params.latent is '32'"),
        ({"tensor": None}, "program.constants[weight.1.w_uv].params.tensor is None"),
        ({"more": 1}, "program.constants[weight.1.w_uv].params: a weight is not made from heads, latent, more, nope"),
    ],
)
def test_weights_of_a_damaged_artifact(latent: Compiled, tmp_path: Path, params: dict[str, object], message: str):
    written = latent.write(tmp_path / "out")
    assert read_artifact(written).manifest() == latent.artifact.manifest()
    before = latent.artifact.program.constants["weight.1.w_uv"].params
    with_its_digest(written, "program/constants/weight.1.w_uv/params", before | params)
    with pytest.raises(KvcError, match="KVC405") as caught:
        read_artifact(written)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"codec": "fp8", "tensors": []}, "params.tensors is []"),
        ({"codec": "fp8", "tensors": "s"}, "params.tensors is 's'"),
        ({"codec": "fp8", "tensors": ["s", 1]}, "params.tensors is ['s', 1]"),
        ({"codec": "fp9", "value": 1.0}, "params.codec is 'fp9'"),
        ({"codec": ["fp8"], "value": 1.0}, "params.codec is ['fp8']"),
        ({"codec": "fp8", "value": "1.0"}, "params.value is '1.0'"),
        ({"codec": "fp8", "value": 1.0, "tensors": ["s"]}, "a scale is not made from codec, tensors, value"),
        ({}, "a scale is not made from nothing"),
    ],
)
def test_scales_of_a_damaged_artifact(written: Path, params: dict[str, object], message: str):
    with_its_digest(written, "program/constants/scale.fp8.1.0/params", params)
    with pytest.raises(KvcError, match="KVC405") as caught:
        read_artifact(written)
    assert message in str(caught.value)


def test_a_constant_that_cannot_be_made_is_damage(written: Path):
    with_its_digest(written, "program/constants/rope.0/params/rope/theta", "high")
    assert code_of(load(written).allocate, num_slots=1) == "KVC405"
