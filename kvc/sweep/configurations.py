"""The configurations of a sweep: one cache section each, in place of that of the spec."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import yaml

from kvc.capabilities import STORAGE_CAPABILITIES
from kvc.compiler import Compiled, compile_spec
from kvc.diagnostics import Diagnostic, KvcError
from kvc.encodings import ENCODINGS
from kvc.report.sweep_results import family_of, label_of
from kvc.specs.loading import load_spec_text
from kvc.specs.resolved import ResolvedSpec

Values = Mapping[str, Any]
Unit = Literal["token", "page"]
_LEFT_OUT = ("draft", "compile")  # nothing is drafted, and passes that must fire are not the same for every encoding


@dataclass(frozen=True)
class Twin:
    """The first and last tokens that are kept in ``encoding`` beside the history."""

    encoding: str
    first: int
    last: int
    unit: Unit = "token"


NO_TWIN = Twin("", 0, 0)


@dataclass(frozen=True)
class Configuration:
    """An encoding of the history, alone or with a twin."""

    encoding: str
    twin: Twin | None = None

    @property
    def family(self) -> str:
        """The encodings: `nvfp4`, or `nvfp4 + bf16` with a twin."""
        return family_of(self.encoding, self.twin.encoding if self.twin else "")

    @property
    def label(self) -> str:
        """`nvfp4`, `nvfp4 + bf16 64/256`."""
        twin = self.twin or NO_TWIN
        return label_of(self.encoding, twin.encoding, twin.first, twin.last)


@dataclass(frozen=True)
class Limits:
    """What the programs of a sweep serve: one sequence of ``tokens``, ``chunk`` a step, on ``device``.

    No more than that: ops that are not fused gather as many rows as the longest sequence may have.
    """

    tokens: int
    chunk: int
    device: str
    arch: str | None = None

    def target(self) -> dict[str, Any]:
        """As the section of a spec."""
        sizes = {"max_sequences": 1, "buckets": [1], "max_seq_len": self.tokens, "max_tokens": self.chunk}
        return {"device": self.device} | ({"arch": self.arch} if self.arch else {}) | sizes


@dataclass(frozen=True)
class Candidate:
    """A configuration that compiles; ``scales`` says where the scales of history and twin come from."""

    configuration: Configuration
    compiled: Compiled
    scales: str

    @property
    def digest(self) -> str:
        """Of the spec's values."""
        digest: str = self.compiled.artifact.spec["digest"]
        return digest


@dataclass(frozen=True)
class Refused:
    """Configurations of one family that cannot be compiled, and why."""

    family: str
    configurations: int
    finding: Diagnostic


def histories() -> list[str]:
    """Encodings of a history that some layer can have, in the order of the table."""
    storable = {row.encoding for row in STORAGE_CAPABILITIES}
    return [name for name in ENCODINGS if name in storable]


def histories_of(spec: ResolvedSpec) -> list[str]:
    """The encodings that every attention layer of ``spec`` can be stored in."""
    kinds = {run.shape.capability for run in spec.runs if run.domain == "target"}
    storable = [{row.encoding for row in STORAGE_CAPABILITIES if row.kind == kind} for kind in kinds]
    return [name for name in histories() if all(name in of for of in storable if of)]


def grid(
    encodings: Sequence[str], retain: Sequence[str], first: Sequence[int], last: Sequence[int], unit: Unit = "token"
) -> list[Configuration]:
    """Every encoding alone, and with every twin that keeps a token."""
    windows = [pair for pair in product(sorted(set(first)), sorted(set(last))) if any(pair)]
    found = [Configuration(encoding) for encoding in encodings]
    for encoding, twin in product(encodings, retain):
        found += [Configuration(encoding, Twin(twin, *window, unit)) for window in windows]
    return found


def compile_configuration(spec: ResolvedSpec, configuration: Configuration, limits: Limits) -> Candidate:
    """The spec with the cache of ``configuration``, compiled for one sequence; KvcError where that cannot be."""
    cache, scales = _cache(spec.values["cache"], configuration)
    values = {name: value for name, value in spec.values.items() if name not in _LEFT_OUT}
    values |= {"cache": cache, "target": limits.target()}
    text = yaml.safe_dump(values, sort_keys=False)
    return Candidate(configuration, compile_spec(load_spec_text(text, f"{spec.name} as {configuration.label}")), scales)


def compile_all(
    spec: ResolvedSpec, configurations: Sequence[Configuration], limits: Limits
) -> tuple[list[Candidate], list[Refused]]:
    """What compiles, and what is refused: one entry a family and reason."""
    candidates: list[Candidate] = []
    refused: dict[tuple[str, str, str], Refused] = {}
    for configuration in configurations:
        try:
            candidates.append(compile_configuration(spec, configuration, limits))
        except KvcError as error:
            finding = error.diagnostics[0]
            key = (configuration.family, finding.code, finding.message)
            before = refused[key].configurations if key in refused else 0
            refused[key] = Refused(configuration.family, before + 1, finding)
    return candidates, list(refused.values())


def _cache(given: Values, configuration: Configuration) -> tuple[dict[str, Any], str]:
    """The cache section of a configuration, and in words where its scales come from."""
    stored: dict[str, Any] = {"encoding": configuration.encoding, "tokens_per_page": given["tokens_per_page"]}
    sources = dict(_scales(given, configuration.encoding))
    words = [f"{source['source']}" for source in sources.values()]
    if configuration.twin:
        twin = configuration.twin
        scales = dict(_scales(given.get("retain") or {}, twin.encoding))
        stored["retain"] = {
            "first": twin.first,
            "last": twin.last,
            "encoding": twin.encoding,
            "unit": twin.unit,
        } | scales
        words += [f"twin {source['source']}" for source in scales.values()]
    return stored | sources, ", ".join(words) or "none"


def _scales(given: Values, encoding: str) -> Iterator[tuple[str, Any]]:
    """The spec's own scales for the encoding that it gives them for; unit scales for another that needs some."""
    if ENCODINGS[encoding].scale == "none":
        return
    own = given.get("scales") if given.get("encoding") == encoding else None
    yield "scales", own or {"source": "unit"}
