"""`kvc sweep`: the table at the end, and the same as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvc.diagnostics import Diagnostic
from kvc.report.sweep_results import Row
from kvc.report.table import table

Skipped = tuple[str, int, Diagnostic]  # family, number of configurations, why

_HEADER = ("", "encoding", "first", "last", "B/token", "B/sequence", "B/token here", "mean KL", "max KL")
_MORE = ("perplexity", "top-1 %", "scales")


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """The rows that no other beats in both bytes and KL, cheapest first."""
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.effective_bytes_per_token, row.mean_kl)):
        if not front or row.mean_kl < front[-1].mean_kl:
            front.append(row)
    return front


def sweep_table(rows: Sequence[Row], skipped: Sequence[Skipped]) -> str:
    """Rows in their order, those of the Pareto front marked; what was skipped, and what the words mean."""
    front = pareto_front(rows)
    lines = [table((*_HEADER, *_MORE), [_cells(row, row in front) for row in rows]), "", *_legend(rows[0])]
    for family, count, finding in skipped:
        lines += ["", f"skipped {family} ({count}): {finding.code} {finding.message}", f"  = help: {finding.help}"]
    return "\n".join(lines)


def _cells(row: Row, is_front: bool) -> tuple[object, ...]:
    window = (row.first, row.last) if row.retain else (None, None)
    sizes = (round(row.bytes_per_token), row.bytes_per_sequence, round(row.effective_bytes_per_token))
    numbers = (_short(row.mean_kl), _short(row.max_kl), round(row.perplexity, 3), round(100 * row.top1_agreement, 1))
    return ("*" if is_front else "", row.family, *window, *sizes, *numbers, row.scales)


def _short(number: float) -> float:
    return float(f"{number:.3g}")


def _legend(row: Row) -> list[str]:
    step = "generation steps of one token" if row.chunk == 1 else f"steps of {row.chunk} tokens"
    return [
        f"{row.model} on {row.device}: {row.tokens:,} tokens of {row.text} (sha256 {row.text_sha256[:12]}), {step}",
        f"KL in nats to an fp32 cache on the same schedule; its perplexity is {row.reference_perplexity:.3f}",
        f"B/token: slope; B/sequence: fixed; B/token here: whole pages of {row.tokens:,} tokens, over their number",
        "*: no other takes fewer bytes and is as close",
    ]


def sweep_json(rows: Sequence[Row], skipped: Sequence[Skipped]) -> dict[str, Any]:
    """The same as plain data."""
    front = {row.digest for row in pareto_front(rows)}
    return {
        "rows": [asdict(row) | {"pareto": row.digest in front} for row in rows],
        "skipped": [
            {"encodings": family, "configurations": count, "code": finding.code, "message": finding.message}
            for family, count, finding in skipped
        ],
    }
