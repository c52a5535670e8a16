"""Compiling as one call: what it cites and what it depends on."""

from pathlib import Path

import pytest

from kvc.artifact import read_artifact
from kvc.compiler import compile_spec
from kvc.diagnostics import KvcError

LIBRARY = Path(__file__).parents[1] / "specs" / "library"


def test_a_finding_of_a_pass_cites_the_file_as_given(tmp_path: Path):
    text = (LIBRARY / "llama-3.1-8b-fp8.yaml").read_text() + "compile: {require: [capture_cuda_graphs]}\n"
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
