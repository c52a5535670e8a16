"""A whole sweep: compile, skip what is done, run the rest in groups, keep the results."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kvc.report.sweep_results import ResultFiles, Row
from kvc.runtime.loader import LoadedArtifact
from kvc.specs.resolved import ResolvedSpec
from kvc.sweep.configurations import Candidate, Configuration, Limits, Refused, compile_all, compile_configuration
from kvc.sweep.measure import Progress, measure
from kvc.sweep.rows import Setting, found_of

REFERENCE = Configuration("fp32")
Bar = Callable[[str, int], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Sweep:
    """What is to be run: ``candidates`` by the digest of their rows, beside ``reference``, and what is ``refused``."""

    setting: Setting
    reference: Candidate
    candidates: dict[str, Candidate]
    refused: list[Refused]

    def rows(self, files: ResultFiles) -> list[Row]:
        """The rows of the candidates, cheapest first."""
        rows = [files.found[digest].row for digest in self.candidates if digest in files.found]
        return sorted(rows, key=lambda row: (row.effective_bytes_per_token, row.mean_kl))

    def left(self, files: ResultFiles) -> list[str]:
        """Digests of candidates without a row."""
        return [digest for digest in self.candidates if digest not in files.found]


def make_sweep(spec: ResolvedSpec, configurations: Sequence[Configuration], setting: Setting, limits: Limits) -> Sweep:
    """Compile every configuration, and the reference; KvcError where there is no reference."""
    reference = compile_configuration(spec, REFERENCE, limits)
    candidates, refused = compile_all(spec, configurations, limits)
    by_digest = {setting.digest(candidate, reference): candidate for candidate in candidates}
    return Sweep(setting, reference, by_digest, refused)


def run_sweep(sweep: Sweep, model: Any, files: ResultFiles, together: int, bar: Bar) -> None:
    """Run what has no row yet, ``together`` configurations at a time; results are kept after each such group."""
    left = sweep.left(files)
    for start in range(0, len(left), together):
        group = left[start : start + together]
        where = f"{start + 1}-{start + len(group)} of {len(left)}" if len(group) > 1 else f"{start + 1} of {len(left)}"
        with bar(f"configuration {where}", sweep.setting.text.tokens) as progress:
            _run_group(sweep, model, files, group, progress)


def _run_group(sweep: Sweep, model: Any, files: ResultFiles, group: Sequence[str], progress: Progress) -> None:
    """One pass over the text; the reference's own row is free."""
    others = [digest for digest in group if sweep.candidates[digest].digest != sweep.reference.digest]
    compiled = [sweep.reference, *(sweep.candidates[digest] for digest in others)]
    artifacts = [LoadedArtifact(candidate.compiled.artifact) for candidate in compiled]
    found = measure(model, artifacts, sweep.setting.text, sweep.setting.chunk, progress)
    measured = dict(zip(others, found[1:], strict=True))
    files.add(
        found_of(sweep.setting, sweep.candidates[digest], digest, measured.get(digest, found[0]), found[0])
        for digest in group
    )
