"""`kvc sweep` on a tiny model folder."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from model_folders import byte_tokenizer, tiny_config, write_model
from tiny_models import spec_values, write_spec
from transformers import AutoModelForCausalLM

from kvc.integrations.transformers.parity import kl_divergence, own_logits
from kvc.plan import make_plan
from kvc.plan.capacity import bytes_for_tokens
from kvc.report.sweep_results import Row, Stretch
from kvc.specs import load_spec
from kvc.sweep import running
from kvc.sweep.configurations import Configuration, Limits, Twin, compile_configuration, grid, histories_of
from kvc.sweep.rows import weights_digest

Run = Callable[..., tuple[int, str, str]]
TEXT = "The history of mathematics begins with counting; tallies on bone are its oldest records. "
TOKENS = 24
SMALL = ("--encodings", "fp32,nvfp4", "--retain", "bf16", "--first", "0,4", "--last", "8")
LABELS = ["fp32", "nvfp4", "nvfp4 + bf16 0/8", "nvfp4 + bf16 4/8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level Llama whose rows nvfp4 can hold, its spec and a text."""
    made = tmp_path_factory.mktemp("sweep")
    write_model(made / "model", head_dim=16)
    write_spec(made, spec_values(tiny_config(head_dim=16)))
    (made / "text.txt").write_text(TEXT, "utf-8")
    return made


@pytest.fixture
def sweep(run_kvc: Run, folder: Path, tmp_path: Path) -> Run:
    """`sweep(options...)` into tmp_path / "out"; later options win."""

    def run(*options: str) -> tuple[int, str, str]:
        given = ["--model", str(folder / "model"), "--text", str(folder / "text.txt"), "--tokens", str(TOKENS)]
        return run_kvc("sweep", str(folder / "llama-fp32.yaml"), *given, "--out", str(tmp_path / "out"), *options)

    return run


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def rows_of(out: Path) -> dict[str, Row]:
    rows = [Row.parse(line) for line in lines_of(out / "sweep.csv")]
    return {row.label: row for row in rows}


GOLDEN = """\
   encoding      first  last  B/token  B/sequence  B/token here
*  nvfp4             -     -       40           0            40
*  nvfp4 + bf16      0     8       40       2,048           125
*  nvfp4 + bf16      4     8       40       3,072           168
*  fp32              -     -      256           0           256
"""


def test_the_table_and_the_plots(sweep: Run, tmp_path: Path) -> None:
    code, out, err = sweep(*SMALL)
    assert code == 0, err
    table, legend, *skipped = out.split("\n\n")
    width = len(GOLDEN.splitlines()[0])  # what comes behind it is measured
    assert "".join(f"{line[:width]}\n" for line in table.splitlines()) == GOLDEN
    assert legend.startswith(f"model on cpu: {TOKENS} tokens of text.txt (sha256 ")
    reason = "KVC143 a twin in `bf16` is no more precise than the history of gqa layers in `fp32`"
    assert len(skipped) == 1 and skipped[0].startswith(f"skipped fp32 + bf16 (2): {reason}\n  = help: ")
    assert f"configuration 1-4 of 4: {TOKENS} of {TOKENS} tokens" in err
    pytest.importorskip("matplotlib")
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == ["positions.csv", "positions.png", "sweep.csv", "sweep.png"]
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_csv_schema_and_bytes_of_the_plan(sweep: Run, tmp_path: Path, folder: Path) -> None:
    sweep(*SMALL)
    out = tmp_path / "out"
    parts, rows = lines_of(out / "positions.csv"), rows_of(out)
    assert list(lines_of(out / "sweep.csv")[0]) == [field.name for field in fields(Row)]
    assert list(parts[0]) == [field.name for field in fields(Stretch)]
    assert list(rows) == LABELS
    plan, exact = make_plan(load_spec(folder / "llama-fp32.yaml")), rows["fp32"]
    assert (exact.bytes_per_token, exact.bytes_per_sequence) == (plan.bytes_per_token, plan.bytes_per_sequence)
    assert exact.text_bytes == bytes_for_tokens(plan, TOKENS) == exact.effective_bytes_per_token * TOKENS
    assert (exact.mean_kl, exact.max_kl, exact.top1_agreement) == (0, 0, 1)
    for row in rows.values():
        own = [Stretch.parse(part) for part in parts if part["digest"] == row.digest]
        assert [part.start for part in own] == [0, *(part.stop for part in own[:-1])]
        assert own[-1].stop == TOKENS
        assert math.isclose(sum(part.mean_kl * (part.stop - part.start) for part in own) / TOKENS, row.mean_kl)
        assert max(part.max_kl for part in own) == row.max_kl


def test_the_reference_is_the_models_own(sweep: Run, tmp_path: Path, folder: Path) -> None:
    """Its perplexity, and that all tokens retained is as close as the twin's encoding alone."""
    sweep("--encodings", "bf16,nvfp4", "--first", "0", "--last", "32")
    rows, ids = rows_of(tmp_path / "out"), byte_tokenizer()(TEXT).input_ids[: TOKENS + 1]
    logs = own_logits(AutoModelForCausalLM.from_pretrained(folder / "model"), ids[:-1]).double().log_softmax(-1)
    surprise = -logs.gather(1, torch.tensor(ids[1:])[:, None]).mean()
    assert math.isclose(rows["bf16"].reference_perplexity, float(surprise.exp()), rel_tol=1e-5)
    whole, high, low = rows["nvfp4 + bf16 0/32"], rows["bf16"], rows["nvfp4"]
    assert 0 < high.mean_kl < low.mean_kl / 10
    assert math.isclose(whole.mean_kl, high.mean_kl, rel_tol=1e-2)


def test_side_by_side_is_one_by_one(sweep: Run, tmp_path: Path) -> None:
    options = ("--encodings", "bf16,nvfp4", "--first", "4", "--last", "8")
    sweep(*options)
    sweep(*options, "--together", "1", "--out", str(tmp_path / "one"))
    together, alone = rows_of(tmp_path / "out"), rows_of(tmp_path / "one")
    assert len(together) == 3
    for label in together:
        assert math.isclose(together[label].mean_kl, alone[label].mean_kl, rel_tol=1e-2, abs_tol=1e-9)
        assert together[label].digest == alone[label].digest


def test_chunks_are_another_schedule(sweep: Run, tmp_path: Path) -> None:
    """Context steps attend to their own rows as computed: less of the cache's error is seen."""
    options = ("--encodings", "nvfp4", "--retain", "")
    sweep(*options)
    sweep(*options, "--chunk", "8", "--out", str(tmp_path / "chunks"))
    steps, chunks = rows_of(tmp_path / "out")["nvfp4"], rows_of(tmp_path / "chunks")["nvfp4"]
    assert (steps.chunk, chunks.chunk) == (1, 8)
    assert chunks.mean_kl < steps.mean_kl


def test_a_sweep_goes_on_where_it_was_stopped(sweep: Run, tmp_path: Path, monkeypatch: Any) -> None:
    options = ("--encodings", "fp32,bf16,nvfp4", "--retain", "")
    real, runs = running.measure, []

    def stopped(model: Any, artifacts: Any, *rest: Any) -> Any:
        runs.append(len(artifacts) - 1)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return real(model, artifacts, *rest)

    monkeypatch.setattr(running, "measure", stopped)
    assert sweep(*options, "--together", "1")[0] == 130
    assert list(rows_of(tmp_path / "out")) == ["fp32", "bf16"]
    code, out, err = sweep(*options, "--together", "1")
    assert code == 0
    assert f"2 of 3 configurations are in {tmp_path / 'out' / 'sweep.csv'} already" in err
    assert list(rows_of(tmp_path / "out")) == ["fp32", "bf16", "nvfp4"]
    assert runs == [0, 1, 1, 1]  # the reference's own row needs no cache beside it
    before = (tmp_path / "out" / "sweep.csv").read_bytes()
    assert sweep(*options)[:2] == (0, out)
    assert len(runs) == 4 and (tmp_path / "out" / "sweep.csv").read_bytes() == before


def test_another_text_is_not_done_yet(sweep: Run, tmp_path: Path) -> None:
    options = ("--encodings", "fp32", "--retain", "")
    sweep(*options)
    _, _, err = sweep(*options, "--tokens", "10")
    assert "already" not in err
    assert [line["tokens"] for line in lines_of(tmp_path / "out" / "sweep.csv")] == ["24", "10"]


def test_json(sweep: Run) -> None:
    code, out, _ = sweep(*SMALL, "--output-format", "json")
    data = json.loads(out)
    assert code == 0
    assert [row["encoding"] for row in data["rows"]] == ["nvfp4", "nvfp4", "nvfp4", "fp32"]
    assert data["rows"][-1]["pareto"] is True
    assert [(one["encodings"], one["configurations"], one["code"]) for one in data["skipped"]] == [
        ("fp32 + bf16", 2, "KVC143")
    ]


BAD: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "an unknown encoding": ("KVC621", "did you mean `nvfp4`?", ("--encodings", "nvfp5")),
    "an unknown twin": ("KVC621", "--retain: unknown encoding `int3`", ("--retain", "int3")),
    "no number": ("KVC621", "--first: `4,x` is not a list of whole numbers", ("--first", "4,x")),
    "a negative number": ("KVC621", "--last: `-1`", ("--last", "-1")),
    "nothing compiles": ("KVC621", "no configuration can be compiled", ("--encodings", "fp8_ds_mla", "--retain", "")),
    "no text": ("KVC620", "cannot read the text from nowhere.txt", ("--text", "nowhere.txt")),
    "too few tokens": (
        "KVC620",
        f"has {len(TEXT)} tokens; a sweep over {len(TEXT)} needs",
        ("--tokens", f"{len(TEXT)}"),
    ),
    "too many tokens": ("KVC608", "a text of 5,000 tokens is over", ("--tokens", "5000")),
    "no model": ("KVC602", "nowhere does not exist", ("--model", "nowhere")),
}


@pytest.mark.parametrize("case", BAD)
def test_findings(sweep: Run, tmp_path: Path, case: str) -> None:
    code, message, options = BAD[case]
    exit_code, out, err = sweep(*options)
    assert exit_code == 1
    assert code in err and message in err
    assert "= help: " in err
    assert out == "" and "Traceback" not in err


@pytest.mark.parametrize("name", ["sweep.csv", "positions.csv"])
@pytest.mark.parametrize("content", ["a,b\n1,2\n", "", "\x00", "digest\n"])
def test_a_file_of_someone_else_is_left_alone(sweep: Run, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text(content)
    code, _, err = sweep(*SMALL)
    assert code == 1 and "KVC622" in err
    assert (tmp_path / "out" / name).read_text() == content


def test_the_folder_is_a_file(sweep: Run, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    code, _, err = sweep(*SMALL)
    assert code == 1 and "KVC622 cannot write" in err


def test_grid_and_defaults() -> None:
    spec = load_spec("smollm2-135m-bf16")
    assert histories_of(spec) == ["fp32", "bf16", "fp8", "nvfp4"]
    found = grid(["fp8", "nvfp4"], ["bf16"], [0, 4], [0, 64])
    assert [one.label for one in found] == [
        *("fp8", "nvfp4", "fp8 + bf16 0/64", "fp8 + bf16 4/0", "fp8 + bf16 4/64"),
        *("nvfp4 + bf16 0/64", "nvfp4 + bf16 4/0", "nvfp4 + bf16 4/64"),
    ]


def test_scales_are_the_specs_own_where_it_has_some(tmp_path: Path) -> None:
    values = spec_values(tiny_config(head_dim=16), "fp8")
    values["cache"]["scales"] = {"source": "values", "values": {"k": 0.5, "v": 0.25}}
    spec = load_spec(write_spec(tmp_path, values))
    limits = Limits(16, 1, "cpu")
    own = compile_configuration(spec, Configuration("fp8"), limits)
    other = compile_configuration(spec, Configuration("nvfp4", Twin("fp8", 4, 4)), limits)
    assert (own.scales, other.scales) == ("values", "unit, twin unit")
    assert own.compiled.artifact.spec["values"]["cache"]["scales"] == values["cache"]["scales"]
    assert own.compiled.artifact.plan.bytes_per_token == make_plan(spec).bytes_per_token


def test_kl_is_that_of_parity() -> None:
    from kvc.sweep.measure import _compared

    logits = [torch.randn(3, 11), torch.randn(3, 11)]
    found = _compared(logits, torch.tensor([1, 2, 3]))
    torch.testing.assert_close(found[1].kl, kl_divergence(*logits))
    assert found[0].agrees.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_other_weights_are_another_sweep(tmp_path: Path, name: str) -> None:
    digests = set()
    for content in (b"one", b"two"):
        (tmp_path / name).write_bytes(content)
        digests.add(weights_digest(tmp_path))
    assert len(digests) == 2
