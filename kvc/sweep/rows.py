"""From what was measured to rows of the result files."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

import kvc
from kvc.plan.capacity import bytes_for_tokens
from kvc.report.sweep_results import Found, Row, Stretch
from kvc.sweep.configurations import NO_TWIN, Candidate
from kvc.sweep.measure import Measured
from kvc.sweep.text import Text

STRETCHES = 32  # parts of the text in positions.csv at most
_VERSIONS: dict[str, Any] = {
    "kvc": kvc.__version__,
    "torch": torch.__version__,
    "transformers": transformers.__version__,
}
_WEIGHTS = ("config.json", "*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True)
class Setting:
    """What the configurations of a sweep have in common; ``weights`` is the sha256 of the model's files."""

    spec: str
    model: str
    weights: str
    text: Text
    chunk: int
    device: str

    def digest(self, candidate: Candidate, reference: Candidate) -> str:
        """Of everything that the numbers of a row depend on."""
        given = (self.weights, self.text.sha256, self.chunk, self.device)
        parts = (candidate.digest, reference.digest, *given, _VERSIONS)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def weights_digest(folder: Path) -> str:
    """The sha256 of a model folder's config and weights."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern)):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def found_of(setting: Setting, candidate: Candidate, digest: str, measured: Measured, reference: Measured) -> Found:
    """The row of a configuration and its stretches."""
    at: dict[str, Any] = {"digest": digest} | _identity(candidate)
    row = Row(
        **at,
        **_bytes(candidate, setting.text.tokens),
        **_setting(setting),
        **_VERSIONS,
        unit=candidate.configuration.twin.unit if candidate.configuration.twin else "",
        scales=candidate.scales,
        **_numbers(measured, 0, setting.text.tokens),
        perplexity=measured.perplexity,
        reference_perplexity=reference.perplexity,
    )
    return Found(row, tuple(_stretches(at, measured, setting.text.tokens)))


def _identity(candidate: Candidate) -> dict[str, Any]:
    twin = candidate.configuration.twin or NO_TWIN
    encoding = candidate.configuration.encoding
    return {"encoding": encoding, "retain": twin.encoding, "first": twin.first, "last": twin.last}


def _bytes(candidate: Candidate, tokens: int) -> dict[str, Any]:
    plan = candidate.compiled.artifact.plan
    held = bytes_for_tokens(plan, tokens)
    return {
        "bytes_per_token": float(plan.bytes_per_token),
        "bytes_per_sequence": plan.bytes_per_sequence,
        "text_bytes": held,
        "effective_bytes_per_token": held / tokens,
    }


def _setting(setting: Setting) -> dict[str, Any]:
    text = {"text": setting.text.name, "text_sha256": setting.text.sha256, "tokens": setting.text.tokens}
    return text | {"spec": setting.spec, "model": setting.model, "chunk": setting.chunk, "device": setting.device}


def _numbers(measured: Measured, start: int, stop: int) -> dict[str, Any]:
    kl, agrees = measured.kl[start:stop], measured.agrees[start:stop]
    return {"mean_kl": float(kl.mean()), "max_kl": float(kl.max()), "top1_agreement": float(agrees.mean())}


def _stretches(at: dict[str, Any], measured: Measured, tokens: int) -> list[Stretch]:
    width = -(-tokens // STRETCHES)
    places = [(start, min(start + width, tokens)) for start in range(0, tokens, width)]
    return [Stretch(**at, start=start, stop=stop, **_numbers(measured, start, stop)) for start, stop in places]
