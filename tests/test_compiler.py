"""Compiling as one call: what it cites and what it depends on."""

from pathlib import Path

import pytest

from kvc.artifact import read_artifact
from kvc.compiler import compile_spec
from kvc.diagnostics import KvcError
from kvc.graphs.graph import qualified_name

LIBRARY = Path(__file__).parents[1] / "specs" / "library"


def test_a_finding_of_a_pass_cites_the_file_as_given(tmp_path: Path):
    text = (LIBRARY / "llama-3.1-8b-fp8.yaml").read_text().replace("sm_90", "sm_80")  # no kernels for it
    text += "compile: {require: [capture_cuda_graphs]}\n"
    spec = tmp_path / "mine.yaml"
    spec.write_text(text)
    with pytest.raises(KvcError) as caught:
        compile_spec(spec)
    assert {(found.code, found.source.path) for found in caught.value.diagnostics} == {("KVC312", str(spec))}
    assert all("reads lengths on the host" in found.message for found in caught.value.diagnostics)


@pytest.mark.parametrize(("name", "shown"), [("new\nline", "new\\nline"), ("b\udcff", "b\\xff"), ("ü # 1", "ü # 1")])
def test_a_spec_file_may_have_any_name(tmp_path: Path, name: str, shown: str):
    spec = tmp_path / f"{name}.yaml"
    spec.write_text((LIBRARY / "tiny-fp8.yaml").read_text())
    read = read_artifact(compile_spec(spec).write(tmp_path / "out"))
    assert read.spec["file"] == f"{shown}.yaml"


def test_comments_and_file_names_change_no_digest_and_no_graph(tmp_path: Path):
    text = (LIBRARY / "tiny-fp8.yaml").read_text()
    spec = tmp_path / "other.yaml"
    spec.write_text("# a comment moves every line\n" + text)
    one, other = compile_spec("tiny-fp8").artifact, compile_spec(spec).artifact
    assert one.spec["digest"] == other.spec["digest"]
    assert one.plan.bytes_per_token == other.plan.bytes_per_token


def test_layers_that_differ_in_scales_alone_share_graphs(tmp_path: Path):
    text = (
        (LIBRARY / "tiny-fp8.yaml")
        .read_text()
        .replace("{source: unit}", "{source: values, values: {k: [1, 2, 3, 4], v: 0.5}}")
    )
    spec = tmp_path / "scaled.yaml"
    spec.write_text(text)
    program = compile_spec(spec).artifact.program
    assert len(program.signatures) == 1
    assert len({binding.constants["scale.k"] for binding in program.bindings}) == 4


_ATTENTION = "  scales: {source: values, values: {q: 0.02, k: 0.02, v: 0.02}}"


@pytest.mark.parametrize(
    ("name", "old", "new", "scales"),
    [
        ("tiny-fp32", "", "", 0),
        ("tiny-fp8", "", "", 1),
        ("tiny-fp8", "{source: unit}", "{source: values, values: {k: [1, 2, 3, 4], v: 0.5}}", 5),
        ("tiny-fp8", "{source: unit}", "{source: checkpoint}", 4 * 2),
        ("tiny-fp8", "{source: unit}", "{source: checkpoint, names: {k: 'x.{layer}', v: 'x.{layer}'}}", 4 * 2),
        ("tiny-mla-fp8", "", "", 2),
        ("tiny-mla-fp8", "{source: unit}", "{source: checkpoint}", 3 + 1),
        ("tiny-mla-fp8", _ATTENTION, "  scales: {source: checkpoint}", 1 + 3 * 3),
        ("tiny-mla-fp8", _ATTENTION, "  scales: {source: unit}", 1),
    ],
)
def test_the_plan_counts_the_scales_of_the_program(tmp_path: Path, name: str, old: str, new: str, scales: int):
    text = (LIBRARY / f"{name}.yaml").read_text()
    assert not old or text.count(old) == 1
    (tmp_path / "some.yaml").write_text(text.replace(old, new) if old else text)
    artifact = compile_spec(tmp_path / "some.yaml").artifact
    assert sum(constant.kind == "scale" for constant in artifact.program.constants.values()) == scales
    assert artifact.plan.overheads.scale_bytes == 8 * scales
    assert len(artifact.program.signatures) == 1, "layers that differ in scales alone share graphs"


@pytest.mark.parametrize(("name", "tables"), [("tiny-mla-fp8", 1), ("tiny-staged", 0)])
def test_the_plan_counts_the_rope_tables_of_the_program(name: str, tables: int):
    artifact = compile_spec(name).artifact
    assert sum(constant.kind == "rope_table" for constant in artifact.program.constants.values()) == tables
    assert (artifact.plan.overheads.rope_bytes > 0) == bool(tables)


def test_context_attention_is_part_of_a_signature(tmp_path: Path):
    text = (LIBRARY / "tiny-mla-fp8.yaml").read_text().replace(f"  context: fp8\n{_ATTENTION}\n", "  context: act\n")
    (tmp_path / "act.yaml").write_text(text)
    found = [compile_spec(spec).artifact.program for spec in ("tiny-mla-fp8", tmp_path / "act.yaml")]
    assert [program.signatures["mla0"]["context"] for program in found] == ["fp8", "act"]
    fp8, act = (program.graphs["mla0", "context"] for program in found)
    assert {"scale.context_q", "scale.context_k", "scale.context_v"} == names_in(fp8) - names_in(act)
    generation = [names_in(program.graphs["mla0", "generation"]) for program in found]
    assert generation[0] == generation[1]


def names_in(graph) -> set[str]:
    """Placeholders that are scales."""
    return {qualified_name(node) for node in graph.placeholders if node.meta["role"] == "scale"}
