"""Rules of the tree that no linter knows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINKED = ("specs", "graphs", "ops", "compiler_passes")


@pytest.mark.parametrize("name", LINKED)
def test_top_level_folders_are_linked_into_the_package(name: str):
    link = ROOT / "kvc" / name
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"
    assert (ROOT / name / "__init__.py").is_file()


@pytest.mark.parametrize("name", LINKED)
def test_nothing_imports_a_top_level_folder_by_its_bare_name(name: str):
    """A second import of ops would register the kvc:: namespace twice."""
    pattern = rf"^ *(import {name}\b|from {name}(\.| ))"
    found = subprocess.run(
        ["grep", "-rnE", pattern, "--include=*.py", "--exclude-dir=.venv", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.stdout == ""


@pytest.mark.parametrize("module", ["kvc", "kvc.cli", "kvc.specs", "kvc.plan", "kvc.plan.types"])
def test_light_modules_import_neither_torch_nor_pydantic(module: str):
    script = f"import sys, {module}; print(*sorted({{'torch', 'pydantic', 'transformers'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "module", ["kvc.graphs.text", "kvc.artifact", "kvc.runtime.loader", "kvc.compiler_passes.manager"]
)
def test_what_loads_artifacts_imports_no_pydantic(module: str):
    script = f"import sys, {module}; print(*sorted({{'pydantic', 'yaml', 'transformers'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_private_hooks_live_in_compat_alone():
    imports, uses = r"(from|import) (torch|transformers)[a-z_.]*\._[a-z]", r"torch\.[a-zA-Z_.]*\._[a-z]"
    pattern = rf"{imports}|{uses}|\._(schema|overloadname|cdata)\b"
    command = ["git", "grep", "-nE", pattern, "--", "*.py", ":!kvc/compat.py", ":!tests", ":!benchmarks"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout == ""


def test_files_stay_under_400_lines():
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    files = [ROOT / name for name in tracked if not (ROOT / name).is_symlink()]
    assert [f.name for f in files if len(f.read_text().splitlines()) > 400] == []
