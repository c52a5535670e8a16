"""Golden graphs: every pass of some library specs, the final program of the others.

`pytest tests/graphs --accept-graphs` rewrites the files; the commit that does shows what changed.
"""

import difflib
from functools import cache
from pathlib import Path

import pytest

from kvc.compiler_passes.manager import program_text, run_passes
from kvc.graphs.lowering.lower import lower
from kvc.plan import make_plan
from kvc.specs import load_spec
from kvc.specs.compilable import compile_findings
from kvc.specs.library import library_specs

GOLDEN = Path(__file__).parent / "golden"
CHAINS = (
    "smollm2-135m-fp8",
    "llama-3.1-8b-bf16",
    "tiny-mixed",
    "deepseek-v3-fp8",
    "deepseek-v3-mixed",
    "tiny-dsa-nvfp4-fp8",
)

COMPILED = [name for name in library_specs() if not any(compile_findings(load_spec(name)))]
FINALS = [name for name in COMPILED if name not in CHAINS]


@cache
def stages(name: str) -> dict[str, str]:
    """File name -> text of the program after lowering and after each pass."""
    spec = load_spec(name)
    program = lower(spec, make_plan(spec))
    texts = {"0_lowered.txt": program_text(program)}

    def keep(done: str, text: str) -> None:
        texts[f"{len(texts)}_{done}.txt"] = text

    run_passes(program, print_after="all", printer=keep)
    return texts


def expected_files() -> dict[Path, str]:
    files = {GOLDEN / name / file: text for name in CHAINS for file, text in stages(name).items()}
    return files | {GOLDEN / f"{name}.txt": list(stages(name).values())[-1] for name in FINALS}


def compare(path: Path, text: str, accept: bool) -> None:
    """Rewrite the file, or fail at the first line that differs."""
    if accept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    golden = path.read_text() if path.exists() else ""
    difference = list(difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "compiled", lineterm=""))
    assert not difference, f"{path.name} differs; run pytest with --accept-graphs\n" + "\n".join(difference[:40])


@pytest.mark.parametrize("name", CHAINS)
def test_chain_of_passes(name: str, accept_graphs: bool) -> None:
    for file, text in stages(name).items():
        compare(GOLDEN / name / file, text, accept_graphs)


@pytest.mark.parametrize("name", FINALS)
def test_final_program(name: str, accept_graphs: bool) -> None:
    compare(GOLDEN / f"{name}.txt", list(stages(name).values())[-1], accept_graphs)


def test_no_orphans(accept_graphs: bool) -> None:
    orphans = set(GOLDEN.rglob("*.txt")) - set(expected_files())
    for path in orphans if accept_graphs else ():
        path.unlink()
    assert accept_graphs or not orphans, f"no spec has these: {sorted(path.name for path in orphans)}"


def test_compiling_twice_gives_equal_bytes() -> None:
    first = stages("tiny-mixed")
    stages.cache_clear()
    assert stages("tiny-mixed") == first
