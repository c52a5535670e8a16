"""`kvc bench`."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvc.cli.progress import spinner
from kvc.diagnostics import fail

if TYPE_CHECKING:
    import torch

    from kvc.report.bench_rows import Row


class BenchFormat(StrEnum):
    """How the rows are printed."""

    text = "text"
    json = "json"


class BenchDevice(StrEnum):
    """Where the calls run."""

    cpu = "cpu"
    cuda = "cuda"


def bench(
    only: Annotated[str, typer.Option(metavar="WORDS", help="ops whose name contains one of these, by commas")] = "",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="where bench.csv and bench.png go")] = None,
    device: Annotated[BenchDevice | None, typer.Option(help="[default: cuda where there is one]")] = None,
    output_format: Annotated[BenchFormat, typer.Option(help="of the rows")] = BenchFormat.text,
) -> None:
    """Time the ops: bytes and operations counted, beside what the GPU reaches and what other libraries take.

    Each result is checked against the reference in the same run. Peers are found in the folder of KVC_PEERS.
    """
    import torch

    from kvc.bench.cases import every_op
    from kvc.bench.ceilings import measure_ceilings
    from kvc.bench.ops import bench_op

    chosen = _device(device)
    ops = every_op([word for word in only.split(",") if word])
    if not ops:
        raise fail("KVC623", f"no op's name contains {only!r}", help="`kvc bench` without --only times all of them")
    rows: list[Row] = []
    with spinner() as say, torch.no_grad():
        say("measuring what the device reaches")
        ceilings = measure_ceilings(chosen)
        for op in ops:
            say(f"timing {op.name}")
            rows += bench_op(op, chosen, ceilings)
    _report(rows, out, output_format)


def _device(wanted: BenchDevice | None) -> "torch.device":
    import torch

    there = torch.cuda.is_available()
    if wanted is BenchDevice.cuda and not there:
        raise fail("KVC624", "there is no CUDA device here", help="leave --device out to time the CPU's references")
    return torch.device(wanted or ("cuda" if there else "cpu"))


def _report(rows: "Sequence[Row]", out: Path | None, output_format: BenchFormat) -> None:
    from dataclasses import asdict

    from kvc.report.bench_table import bench_table
    from kvc.report.json_text import json_text

    data = {"rows": [asdict(row) for row in rows]}
    print(json_text(data) if output_format is BenchFormat.json else bench_table(rows))
    for path in _write(rows, out) if out else ():
        print(f"wrote {path}", file=sys.stderr)


def _write(rows: "Sequence[Row]", out: Path) -> list[Path]:
    """The CSV file and the plot; without matplotlib a line that says so in its place."""
    from importlib.util import find_spec

    from kvc.report.bench_plot import write_bench_plot
    from kvc.report.bench_rows import write_rows

    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "bench.csv", out / "bench.png"]
    write_rows(paths[0], rows)
    if find_spec("matplotlib") is None:
        print("no plot: it needs matplotlib, pip install 'kvc[plot]'", file=sys.stderr)
        return paths[:1]
    write_bench_plot(paths[1], rows)
    return paths
