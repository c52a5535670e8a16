"""`kvc bench`: what is counted, what is compared, what is written."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kvc.bench.cases import cases_of, compare, make_inputs
from kvc.bench.ceilings import Ceilings, measure_ceilings
from kvc.bench.ops import bench_case
from kvc.bench.peers import PEERS, peer_of
from kvc.bench.rows import NO_PEER, Peer, row_of
from kvc.bench.timing import Timing, sets_beyond_cache
from kvc.bench.work import Work, work_of
from kvc.ops import OPS
from kvc.ops.bench_shapes import Case, Twin
from kvc.ops.example_inputs import Shape

CPU = torch.device("cpu")
LATENT = Shape(committed=(99, 31), own=(1, 1), heads=2, latent_dim=64, rope_dim=16, encoding="nvfp4", nope_dim=8)


def work(op: str, case: Case) -> Work:
    args, kwargs = make_inputs(OPS[op], case, CPU)
    return work_of(OPS[op], case, args, OPS[op].overload(*args, **kwargs))


def test_decode_reads_every_row_once() -> None:
    row = 64 // 2 + 64 // 16 + 16 // 2 + 1
    small = (2 * 2 * (64 + 16) * 2, 2 * 8 * 4, 2 * 4, 2 * 8)  # queries, page table, lengths, two scale operands
    results = 2 * 2 * 64 * 2 + 2 * 2 * 4
    found = work("mla_decode", Case(LATENT))
    assert found == Work(132 * row + sum(small) + results, 2 * 2 * (64 + 16 + 64) * 132, "bf16")


def test_retained_rows_count_in_the_twin_and_not_in_the_history() -> None:
    case = Case(LATENT, Twin("fp8", 4, 8))
    more = 2 * 8 * 4 + 2 * 4 + 2 * 8  # its page table, committed lengths, its scales
    rows = 2 * (4 + 8 + 1)
    assert work("mla_decode", case).bytes == work("mla_decode", Case(LATENT)).bytes + more + rows * (80 - 45)


def test_append_writes_the_rows_of_its_tokens() -> None:
    shape = replace(LATENT, committed=(0,), own=(3,))
    plain = work("append_mla", Case(shape))
    mixed = work("append_mla", Case(shape, Twin("fp8", 4, 8)))
    assert mixed.bytes - plain.bytes == 3 * 80 + 3 * 4 + 2 * 8 and plain.flops == 0


def test_causal_attention_counts_the_pairs_that_are_seen() -> None:
    shape = Shape(committed=(5,), own=(3,), heads=4, head_dim=32, v_head_dim=16)
    assert work("gqa_context", Case(shape, latent=False)).flops == 2 * 4 * (32 + 16) * (6 + 7 + 8)


@pytest.mark.parametrize("op", OPS)
def test_every_case_of_a_gpu_is_a_valid_call(op: str) -> None:
    """At a hundredth of its size the reference takes it."""
    for case in cases_of(OPS[op], torch.device("cuda")).values():
        shape = case.shape
        sequences = min(2, len(shape.own))
        small = [tuple(min(n, 70) for n in counts[:sequences]) for counts in (shape.committed, shape.own)]
        shape = replace(
            shape,
            committed=small[0],
            own=small[1],
            heads=min(shape.heads, 2 * shape.kv_heads),
            top_k=16,
            max_position=0,
        )
        args, kwargs = make_inputs(OPS[op], replace(case, shape=shape), CPU)
        OPS[op].overload(*args, **kwargs)


def test_comparing() -> None:
    a = torch.tensor([3.0, 4.0])
    assert compare([a, torch.tensor([1, 2])], [a.clone(), torch.tensor([1, 3])]) == 0.5
    assert compare(a + torch.tensor([0.0, 0.5]), a) == pytest.approx(0.1)
    assert compare(a, a.clone()) == 0.0 and compare(torch.tensor([torch.nan, 1.0]), torch.tensor([2.0, 1.0])) > 0.5


def test_the_nearer_ceiling_is_the_bound() -> None:
    ceilings, timing = Ceilings(copy=4e12, bf16=8e14, fp8=16e14), Timing(100.0, 90.0, True)
    memory = row_of("op", "case", "triton", timing, Work(200_000_000, 10**9, "bf16"), ceilings, "gpu", 0.0)
    product = row_of(
        "op", "case", "triton", timing, Work(10**6, 8 * 10**10, "fp8"), ceilings, "gpu", 0.0, Peer("x", 250)
    )
    assert (memory.bound, memory.fraction, memory.gbps) == ("copy", 0.5, 2000.0)
    assert (product.bound, product.fraction, product.peer_ratio) == ("fp8", 0.5, 2.5)


def test_a_case_on_a_cpu_runs_the_reference_and_has_no_ceiling() -> None:
    assert measure_ceilings(CPU) == Ceilings() and sets_beyond_cache(1, CPU) == 1
    row = bench_case(OPS["rope"], "small", Case(Shape()), CPU, Ceilings())
    assert (row.kernel, row.bound, row.error, row.captured) == ("reference", "", 0.0, False) and row.median_us > 0


def test_peers_are_found_by_the_folder_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = next(iter(cases_of(OPS["mla_decode"], torch.device("cuda")).values()))
    monkeypatch.delenv("KVC_PEERS", raising=False)
    assert peer_of("mla_decode", case) is None and NO_PEER.name == ""
    assert any(peer.op == "mla_decode" and peer.takes(case) for peer in PEERS)
    assert not any(peer.takes(Case(Shape(committed=(3,), own=(2,)))) for peer in PEERS)


def test_the_command(run_kvc, tmp_path: Path) -> None:
    code, out, err = run_kvc("bench", "--only", "write_rows", "--device", "cpu", "--out", str(tmp_path / "made"))
    assert code == 0 and out.splitlines()[0].split()[:4] == ["op", "case", "kernel", "us"]
    assert f"wrote {tmp_path / 'made/bench.csv'}" in err
    with (tmp_path / "made/bench.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["op"] for row in rows} == {"write_rows"} and rows[0]["torch"] == torch.__version__
    assert (tmp_path / "made/bench.png").read_bytes()[:4] == b"\x89PNG"


def test_the_command_as_json(run_kvc) -> None:
    code, out, _ = run_kvc("bench", "--only", "write_rows", "--device", "cpu", "--output-format", "json")
    assert code == 0 and json.loads(out)["rows"][0]["op"] == "write_rows"


@pytest.mark.parametrize(("option", "code"), [(("--only", "softmax"), "KVC623"), (("--device", "cuda"), "KVC624")])
def test_what_cannot_be_timed(run_kvc, option: tuple[str, str], code: str) -> None:
    if code == "KVC624" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    status, _, err = run_kvc("bench", *option)
    assert status == 1 and code in err and "Traceback" not in err
