"""Artifacts of mixed caches that were changed so that their digests fit: history and twin must mean the same to all."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvc.artifact import read_artifact
from kvc.compiler import compile_spec
from kvc.diagnostics import KvcError
from kvc.specs import load_spec_text

TEXT = """\
kvc: 1
name: mixed
model:
  dtype: fp32
  max_position: 256
  layers: [{kind: gqa, repeat: 2, heads: 4, kv_heads: 2, head_dim: 16, rope: {kind: default, theta: 10000}}]
cache:
  encoding: nvfp4
  scales: {source: unit}
  tokens_per_page: 4
  retain: {first: 4, last: 8, encoding: fp8, scales: {source: unit}}
target: {device: cpu, max_sequences: 4, max_seq_len: 128, max_tokens: 128}
"""
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_spec(load_spec_text(TEXT)).write(tmp_path_factory.mktemp("mixed") / "out")


@pytest.fixture
def written(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "out"))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def changed(directory: Path, change: Change) -> None:
    """Change the manifest and make its digest fit."""
    file = directory / "manifest.json"
    data = json.loads(file.read_text())
    change(data)
    body = {key: part for key, part in data.items() if key != "digest"}
    data["digest"] = _sha256(json.dumps(body, separators=(",", ":"), sort_keys=True))
    file.write_text(json.dumps(data))


def rewritten(directory: Path, graphs: str, old: str, new: str) -> None:
    """Replace text in graphs whose name ends so, and make the digests fit."""
    digests = {}
    for path in (directory / "graphs").glob(f"*{graphs}.txt"):
        text = path.read_text().replace(old, new)
        path.write_text(text)
        digests[path.stem] = _sha256(text)
    changed(directory, lambda data: data["graphs"].update(digests))


def refused(directory: Path) -> str:
    with pytest.raises(KvcError, match="KVC405") as caught:
        read_artifact(directory)
    return str(caught.value)


def _coverage(lifecycle: int, **values: Any) -> Change:
    return lambda data: data["plan"]["lifecycles"][lifecycle]["coverage"].update(values)


def _swapped_coverages(data: dict[str, Any]) -> None:
    history, twin = data["plan"]["lifecycles"]
    history["coverage"], twin["coverage"] = twin["coverage"], history["coverage"]


def _swapped_roles(data: dict[str, Any]) -> None:
    other = {"history": "twin", "twin": "history"}
    for part in (*data["plan"]["buffers"], *data["plan"]["layer_groups"]):
        part["role"] = other[part["role"]]
    for binding in data["program"]["bindings"]:
        binding["pools"] = {other[role]: place for role, place in binding["pools"].items()}


def _swapped_scales(data: dict[str, Any]) -> None:
    for binding in data["program"]["bindings"]:
        bound = binding["constants"]
        bound["scale.k"], bound["scale.twin_k"] = bound["scale.twin_k"], bound["scale.k"]


def _one_page(data: dict[str, Any]) -> None:
    for part in (*data["plan"]["buffers"], *data["program"]["bindings"]):
        if "pools" in part:
            part["pools"]["twin"] = [1, 0]
        elif part["role"] == "twin":
            part["index"] = 0


def _twin_pool(pool: int, index: int) -> Change:
    return lambda data: data["program"]["bindings"][1]["pools"].update(twin=[pool, index])


CHANGES: dict[str, tuple[Change, str]] = {
    "last": (
        _coverage(1, window=5),
        "coverage of its twin is first_last 5, first 4 in the plan, first_last 9, first 4",
    ),
    "first": (_coverage(1, keep_first=0), "coverage of its twin is first_last 9, first 0 in the plan"),
    "below 0": (_coverage(1, keep_first=-1), "a coverage or page size that this kvc does not know"),
    "no window": (_coverage(1, window=0), "a coverage or page size that this kvc does not know"),
    "full twin": (_coverage(1, kind="full", window=None), "coverage of its twin is full, first 4 in the plan"),
    "window": (_coverage(1, kind="window"), "coverage of its twin is window 9, first 4 in the plan"),
    "windowed history": (
        _coverage(0, kind="window", window=9),
        "coverage of its history is window 9 in the plan, full",
    ),
    "swapped coverages": (_swapped_coverages, "coverage of its history is first_last 9 in the plan, full in its"),
    "swapped roles": (_swapped_roles, "uses the page table of pool 0 for pool.history; it is bound to 1"),
    "swapped scales": (_swapped_scales, "scale.k is for fp8, its rows are nvfp4"),
    "one page for two layers": (_one_page, "two buffers have the same page of a slot"),
    "twin pool out of range": (_twin_pool(7, 0), "uses the page table of pool 1 for pool.twin; it is bound to 7"),
    "twin page out of range": (_twin_pool(1, 9), "bound to a page that the plan does not give it"),
    "page size": (
        lambda data: data["plan"]["lifecycles"][1].update(tokens_per_page=8),
        "tokens_per_page of its twin is 8 in the plan, 4 in its signature",
    ),
    "domain": (
        lambda data: data["plan"]["lifecycles"][1].update(domain="draft"),
        "domain of its twin is draft in the plan, target in its signature",
    ),
    "nothing retained": (
        lambda data: data["program"]["signatures"]["gqa0"].pop("retain"),
        "of a twin; nothing is retained",
    ),
    "more retained": (
        lambda data: data["program"]["signatures"]["gqa0"]["retain"].update(last=99),
        "of a twin; first 4, last 99 by the token is retained",
    ),
    "drafts": (lambda data: data["plan"].update(draft_tokens=-1), "plan.draft_tokens is below 0"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_manifest_is_refused(written: Path, name: str) -> None:
    change, message = CHANGES[name]
    changed(written, change)
    assert message in refused(written)


@pytest.mark.parametrize("graphs", [".context", ".generation", ""])
@pytest.mark.parametrize(("old", "new"), [("last=8", "last=80"), ("first=4", "first=0"), ("unit=token", "unit=page")])
def test_a_graph_that_reads_other_rows_is_refused(written: Path, graphs: str, old: str, new: str) -> None:
    rewritten(written, graphs, old, new)
    assert "of a twin; first 4, last 8 by the token is retained" in refused(written)


def test_a_graph_that_reads_the_history_alone_is_refused(written: Path) -> None:
    """The generation graph's decode without its twin operands, which is a call of a plain cache."""
    text = (written / "graphs" / "gqa0.generation.txt").read_text()
    (line,) = [line for line in text.splitlines() if "kvc.gqa_decode(" in line]
    head, _, tail = line.partition(") {")
    operands = ", ".join((*head.split(", ")[:-5], *["none"] * 5))
    kept = [part for part in tail.split(", ") if part.split("=")[0] not in ("first", "last", "twin_encoding")]
    plain = f"{operands}) {{{', '.join(kept)}".replace("unit=token, ", "")
    rewritten(written, "gqa0.generation", line, plain)
    assert "gqa0.generation: retains rows and reads no twin" in refused(written)


def test_what_is_not_changed_is_read(written: Path) -> None:
    changed(written, lambda data: None)
    rewritten(written, "", "no such text", "")
    assert read_artifact(written).program.signatures["gqa0"]["retain"]["last"] == 8
