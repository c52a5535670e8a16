"""What `kvc bench` measured, a row a case: to a CSV file that says on what GPU and with which versions."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from io import StringIO
from pathlib import Path

from kvc.report.files import write_whole


@dataclass(frozen=True)
class Row:
    """Times in microseconds, bytes and operations of one call, rates in GB/s and TFLOP/s.

    ``bound``: the ceiling (`copy`, `bf16`, `fp8`) that the call comes closest to, ``fraction`` of it. ``peer_ratio`` is
    the peer's time over kvc's: above 1 kvc is faster. ``captured``: timed inside a CUDA graph. ``error``: of the
    result against the reference's, measured in the same run; of bytes the part that differs.
    """

    op: str
    case: str
    kernel: str
    median_us: float
    fastest_us: float
    captured: bool
    bytes: int
    flops: int
    gbps: float
    tflops: float
    bound: str
    fraction: float
    error: float
    peer: str
    peer_us: float
    peer_ratio: float
    device: str
    torch: str
    triton: str
    kvc: str


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a CSV file, whole or not at all."""
    text = StringIO(newline="")
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_whole(path, text.getvalue().encode())
