"""`kvc init`: where it writes, what it refuses, and what it does not import."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvc.specs import load_spec

Run = Callable[..., tuple[int, str, str]]
HUB = Path(__file__).parents[1] / "data" / "hf_configs" / "hub"
LLAMA = str(HUB / "llama-3.1-8b.json")


def test_to_stdout(run_kvc: Run) -> None:
    code, out, err = run_kvc("init", "--from-hf", LLAMA)
    assert (code, err) == (0, "")
    assert out.startswith("# yaml-language-server: $schema=") and "name: llama-3.1-8b\n" in out


def test_to_a_file_that_loads(run_kvc: Run, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    options = ("--encoding", "fp8", "--tp", "2", "--max-seq-len", "4096", "--name", "mine", "-o", str(file))
    assert run_kvc("init", "--from-hf", LLAMA, *options)[::2] == (0, "")
    spec = load_spec(str(file))
    assert (spec.name, spec.tensor_parallel, spec.runs[0].encoding) == ("mine", 2, "fp8")
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]
    assert file.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_file_is_replaced_by_force_alone(run_kvc: Run, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("mine")
    code, out, err = run_kvc("init", "--from-hf", LLAMA, "-o", str(file))
    assert (code, out, file.read_text()) == (1, "", "mine")
    assert "KVC159 the file exists already" in err and "--force" in err
    assert run_kvc("init", "--from-hf", LLAMA, "-o", str(file), "--force")[0] == 0
    assert load_spec(str(file)).num_layers == 32


def test_nothing_is_written_where_there_are_findings(run_kvc: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{\n "model_type": "lama"\n}')
    code, out, err = run_kvc("init", "--from-hf", str(config), "-o", str(tmp_path / "spec.yaml"))
    assert (code, out) == (1, "")
    assert f"{config}:2:2: KVC153 unknown model_type `lama`" in err
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_folder_that_is_not_there(run_kvc: Run, tmp_path: Path) -> None:
    code, _, err = run_kvc("init", "--from-hf", LLAMA, "-o", str(tmp_path / "no" / "spec.yaml"))
    assert code == 1 and "KVC159 cannot write" in err


def test_ignored_fields(run_kvc: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(Path(LLAMA).read_text().replace("{", '{"kv_sharing": 1, "warp": 2,', 1))
    assert run_kvc("init", "--from-hf", str(config))[0] == 1
    assert run_kvc("init", "--from-hf", str(config), "--ignore-field", "kv_sharing", "--ignore-field", "warp")[0] == 0


def test_usage(run_kvc: Run) -> None:
    assert run_kvc("init")[0] == 2
    assert run_kvc("init", "--from-hf", LLAMA, "--tp", "0")[0] == 2


def test_without_torch_and_in_no_time(checkout_path: str) -> None:
    script = (
        "import sys\nfrom kvc.specs.hf.importing import spec_from_config\nspec_from_config(sys.argv[1])\n"
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    env = os.environ | {"PYTHONPATH": checkout_path}
    started = time.process_time(), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script, LLAMA], env=env, text=True, capture_output=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert time.perf_counter() - started[1] < 10  # 0.5 s of work; a shared machine may make it wait
