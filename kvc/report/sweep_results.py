"""The result files of a sweep: `sweep.csv`, a row a configuration, and `positions.csv`, a row a stretch of the text.

Both are written whole after every configuration, so a sweep that is stopped leaves files that can be read, and the
next one goes on from them: a row counts as done under its digest alone.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, Self

from kvc.diagnostics import Source, fail
from kvc.report.files import write_whole


def family_of(encoding: str, retain: str) -> str:
    """The encodings: `nvfp4`, or `nvfp4 + bf16` with a twin."""
    return f"{encoding} + {retain}" if retain else encoding


def label_of(encoding: str, retain: str, first: int, last: int) -> str:
    """The encodings, and what the twin keeps: `nvfp4`, `nvfp4 + bf16 64/256`."""
    return f"{family_of(encoding, retain)} {first}/{last}" if retain else encoding


class _Record:
    """A dataclass of strings, ints and floats as a line of CSV."""

    @classmethod
    def names(cls) -> list[str]:
        """The columns."""
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def parse(cls, line: dict[str, str]) -> Self:
        """The inverse of the CSV writer; ValueError for a value that is missing, too many, or of another type."""
        kinds: dict[str, Any] = {field.name: field.type for field in fields(cls)}  # type: ignore[arg-type]
        if line.keys() != kinds.keys() or None in line.values():
            raise ValueError("a line has another number of values than there are columns")
        values = {name: kinds[name](value) for name, value in line.items()}
        if not all(isfinite(value) for value in values.values() if isinstance(value, float)):
            raise ValueError("a value is not a finite number")
        return cls(**values)


@dataclass(frozen=True)
class Row(_Record):
    """One configuration.

    ``bytes_per_token`` (slope) and ``bytes_per_sequence`` (fixed) are the plan's; ``text_bytes`` what a sequence of
    ``tokens`` holds in whole pages, ``effective_bytes_per_token`` that over ``tokens``. KL in nats of the reference's
    next-token distribution to this one's. ``first``, ``last`` 0 and ``retain`` empty: no twin.
    """

    digest: str
    spec: str
    model: str
    encoding: str
    retain: str
    first: int
    last: int
    unit: str
    scales: str
    chunk: int
    device: str
    tokens: int
    bytes_per_token: float
    bytes_per_sequence: int
    text_bytes: int
    effective_bytes_per_token: float
    mean_kl: float
    max_kl: float
    perplexity: float
    reference_perplexity: float
    top1_agreement: float
    text: str
    text_sha256: str
    kvc: str
    torch: str
    transformers: str

    @property
    def family(self) -> str:
        """See `family_of`."""
        return family_of(self.encoding, self.retain)

    @property
    def label(self) -> str:
        """See `label_of`."""
        return label_of(self.encoding, self.retain, self.first, self.last)


@dataclass(frozen=True)
class Stretch(_Record):
    """A configuration over the tokens ``start`` to ``stop`` (not included) of the text."""

    digest: str
    encoding: str
    retain: str
    first: int
    last: int
    start: int
    stop: int
    mean_kl: float
    max_kl: float
    top1_agreement: float


@dataclass(frozen=True)
class Found:
    """A row and its stretches."""

    row: Row
    stretches: tuple[Stretch, ...]


class ResultFiles:
    """The two files in a folder, and what they hold by digest."""

    def __init__(self, folder: Path) -> None:
        self.table, self.positions = folder / "sweep.csv", folder / "positions.csv"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error) from error
        stretches: dict[str, list[Stretch]] = {}
        for stretch in _read(self.positions, Stretch):
            stretches.setdefault(stretch.digest, []).append(stretch)
        self.found = {
            row.digest: Found(row, tuple(stretches[row.digest]))
            for row in _read(self.table, Row)
            if _covers(stretches.get(row.digest, []), row.tokens)
        }

    def add(self, found: Iterable[Found]) -> None:
        """Add what a run gave, and write both files."""
        self.found |= {one.row.digest: one for one in found}
        # Stretches first: a row says that its stretches are there.
        self._write(self.positions, Stretch, [of for one in self.found.values() for of in one.stretches])
        self._write(self.table, Row, [one.row for one in self.found.values()])

    def _write(self, path: Path, kind: type[_Record], records: Sequence[Any]) -> None:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, kind.names(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, records))
        try:
            write_whole(path, stream.getvalue().encode())
        except OSError as error:
            raise _cannot_write(path, error) from error


def _covers(stretches: Sequence[Stretch], tokens: int) -> bool:
    """Whether stretches are those of a whole text, one after the other: a row whose are lost is measured again."""
    ends = [0, *(one.stop for one in stretches)]
    return bool(stretches) and [one.start for one in stretches] == ends[:-1] and ends[-1] == tokens


def _cannot_write(path: Path, error: OSError) -> Exception:
    message = f"cannot write: {error.strerror or error}"
    return fail("KVC622", message, source=Source(str(path)), help="choose another place with --out")


def _read(path: Path, kind: Any) -> list[Any]:
    """The records of a file; none where there is no file. Raises KvcError KVC622 for a file that is no such table."""
    if not path.exists():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            if reader.fieldnames != kind.names():
                raise ValueError("its columns are not those of this version")
            return [kind.parse(line) for line in reader]
    except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
        message = f"cannot go on from the results in {path.name}: {error}"
        help = "choose another folder with --out, or move the file away"
        raise fail("KVC622", message, source=Source(str(path)), help=help) from error
