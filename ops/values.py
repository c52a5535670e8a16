"""Checks of operand values: they read the tensors on the host, before anything is written; fake kernels skip them."""

import itertools
from collections import Counter

import torch

from kvc.diagnostics import fail
from kvc.ops.axes import wrong


def check_range(op: str, argument: str, values: torch.Tensor, low: int, high: int) -> None:
    """Raise KVC552 unless every value is in ``[low, high)``; the message names the first one that is not."""
    if not values.numel():
        return
    least, most = torch.aminmax(values)
    if least.item() < low or most.item() >= high:
        outside = (values < low) | (values >= high)
        index = tuple(outside.nonzero()[0].tolist())
        raise fail(
            "KVC552", f"kvc::{op}: {argument}{list(index)} is {int(values[index])}, expected {low} <= value < {high}"
        )


def check_tokens(
    op: str, positions: torch.Tensor, sequence_ids: torch.Tensor, sequences: int, positions_end: int
) -> None:
    """Raise KVC552 unless every token is of one of the sequences, at a position below the end, or padding (-1)."""
    check_range(op, "sequence_ids", sequence_ids, -1, sequences)
    own = positions.masked_fill(sequence_ids < 0, 0)
    check_range(op, "positions", own, 0, max(1, positions_end))


def check_write_rows(op: str, rows: torch.Tensor, num_rows: int, argument: str = "rows") -> None:
    """Raise unless the write rows are in ``[-1, num_rows)`` (KVC552) and those that are not -1 differ (KVC553)."""
    check_range(op, argument, rows, -1, num_rows)
    written = [row for row in rows.tolist() if row >= 0]
    if len(set(written)) != len(written):
        row, times = Counter(written).most_common(1)[0]
        raise fail(
            "KVC553", f"kvc::{op}: {argument}: write row {row} is given {times} times", help="give each row once"
        )


def check_queries(op: str, argument: str, q: torch.Tensor, lengths: torch.Tensor) -> None:
    """Raise KVC551 unless every sequence has as many of the query tokens."""
    tokens, sequences = len(q), len(lengths)
    if tokens % sequences if sequences else tokens:
        raise wrong(op, argument, f"axis T is {tokens}, expected a multiple of the {sequences} sequences")


def check_starts(op: str, argument: str, starts: torch.Tensor, total: int) -> None:
    """Raise KVC552 unless the starts begin with 0, never fall and end at ``total`` or below."""
    values = starts.tolist()
    if values[0] != 0 or values[-1] > total or any(a > b for a, b in itertools.pairwise(values)):
        raise fail("KVC552", f"kvc::{op}: {argument} is {values[:9]}, expected 0 <= ... <= {total}, never falling")
