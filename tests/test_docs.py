"""What the documents show is what the tool prints: every console block is run again and compared.

``pytest --accept-docs`` writes the real output into the documents. Blocks after ``<!-- not run -->`` need the network;
Python blocks after ``<!-- run -->`` are run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(?P<skip><!-- not run -->\n)?```console\n\$ (?P<command>.*)\n(?P<output>[\s\S]*?)```")
TIMES = re.compile(r" *\d+ ms")
PROGRAMS = {"kvc ": f"{sys.executable} -m kvc ", "python ": f"{sys.executable} "}
PROGRAM = re.compile("|".join(PROGRAMS))
PYTHON = re.compile(r"<!-- run -->\n```python\n(?P<code>[\s\S]*?)```")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def run(command: str, folder: Path, python_path: str) -> str:
    """What a console shows: stdout and stderr of the command in a folder that holds the documents' files."""
    (folder / "docs").symlink_to(ROOT / "docs")
    env = os.environ | {"PYTHONPATH": python_path, "COLUMNS": "120", "NO_COLOR": "1"}
    script = PROGRAM.sub(lambda found: PROGRAMS[found[0]], command, count=1)
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=env, text=True, stdout=-1, stderr=subprocess.STDOUT)
    return done.stdout


def blocks() -> list:
    found = []
    for document in DOCUMENTS:
        for match in BLOCK.finditer((ROOT / document).read_text()):
            if not match["skip"]:
                found.append(pytest.param(document, match["command"], match["output"], id=match["command"][:40]))
    return found


@pytest.mark.parametrize(("document", "command", "shown"), blocks())
def test_console_blocks_show_real_output(
    document: str, command: str, shown: str, tmp_path: Path, checkout_path: str, request
):
    printed = run(command, tmp_path, checkout_path)
    same = TIMES.sub(" .. ms", shown) == TIMES.sub(" .. ms", printed)
    if request.config.getoption("--accept-docs") and not same:
        path = ROOT / document
        path.write_text(path.read_text().replace(f"$ {command}\n{shown}```", f"$ {command}\n{printed}```"))
        return
    assert same, printed


def test_python_blocks_run(tmp_path: Path, checkout_path: str):
    codes = [code for document in DOCUMENTS for code in PYTHON.findall((ROOT / document).read_text())]
    env = os.environ | {"PYTHONPATH": checkout_path}
    assert codes
    for code in codes:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str):
    text = (ROOT / document).read_text()
    for target in LINK.findall(text):
        assert ((ROOT / document).parent / target).exists(), target


def test_the_two_commands_are_where_ci_finds_them():
    readme = (ROOT / "README.md").read_text()
    for marker in ("run-command", "test-command"):
        assert re.search(rf"<!-- {marker} -->\n```sh\n[^\n]+\n```", readme)
