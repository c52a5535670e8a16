"""`kvc bench`: the table, and the same as JSON."""

from collections.abc import Sequence

from kvc.report.bench_rows import Row
from kvc.report.table import table

_HEADER = ("op", "case", "kernel", "us", "GB/s", "TFLOP/s", "of ceiling", "error", "peer", "peer us", "x peer")


def bench_table(rows: Sequence[Row]) -> str:
    """A line a case."""
    return table(_HEADER, map(_cells, rows))


def _cells(row: Row) -> tuple[object, ...]:
    reached = f"{row.fraction:.0%} of {row.bound}" if row.bound else "-"
    peer = (row.peer, row.peer_us, row.peer_ratio) if row.peer else ("-", None, None)
    rate = row.tflops if row.flops else None
    kernel = row.kernel if row.captured else f"{row.kernel}, launched"
    return (row.op, row.case, kernel, row.median_us, row.gbps, rate, reached, row.error, *peer)
