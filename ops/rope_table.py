"""The table of cosines and sines that kvc::rope reads, for every kind of RoPE scaling.

Computed once on the host in float64 and rounded to fp32. The kinds are one table: each turns the plain frequencies into
scaled ones and gives the factor that cosines and sines are multiplied by.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Protocol

import torch

from kvc.diagnostics import fail

_BLOCK = 1 << 16  # positions computed at once: the float64 of a long table would take several times its memory

Params = Mapping[str, float]
Scaled = tuple[torch.Tensor, float]


class RopeParams(Protocol):
    """What is read of a rope: `kvc.specs.resolved.Rope` has it."""

    @property
    def kind(self) -> str:
        """One of `KINDS`."""

    @property
    def dim(self) -> int:
        """R, rotated features a head."""

    @property
    def theta(self) -> float:
        """Base of the wavelengths."""

    @property
    def params(self) -> tuple[tuple[str, float], ...]:
        """The kind's own numbers."""


def rope_table(rope: RopeParams, max_len: int) -> torch.Tensor:
    """The table f32 ``[max_len, R]`` = [cos (R/2) | sin (R/2)], the factor of the kind multiplied in.

    Raises KVC556 for a kind that is not known or a number that is missing.
    """
    frequencies, factor = inverse_frequencies(rope)
    table, pairs = torch.empty(max_len, rope.dim), len(frequencies)
    for start, rows in zip(range(0, max_len, _BLOCK), table.split(_BLOCK), strict=True):
        angles = torch.arange(start, start + len(rows), dtype=torch.float64)[:, None] * frequencies
        rows[:, :pairs] = angles.cos().mul_(factor)
        rows[:, pairs:] = angles.sin_().mul_(factor)
    return table


def table_digest(table: torch.Tensor) -> str:
    """The sha256 of a table's bytes, by which two machines know that they rotate alike."""
    return hashlib.sha256(table.numpy().data).hexdigest()


def inverse_frequencies(rope: RopeParams) -> Scaled:
    """Radians a position for each of the R/2 pairs, float64, and the factor on cosines and sines; raises KVC556."""
    if rope.kind not in KINDS:
        raise fail("KVC556", f"rope kind {rope.kind!r} is not known", help=f"one of {', '.join(KINDS)}")
    # Powers by Python's libm: vectorised ones differ by an ulp between CPUs, which positions multiply by up to 2^17.
    powers = [rope.theta ** -(index / rope.dim) for index in range(0, rope.dim, 2)]
    frequencies = torch.tensor(powers, dtype=torch.float64)
    try:
        return KINDS[rope.kind](frequencies, rope.theta, dict(rope.params))
    except KeyError as missing:
        raise fail("KVC556", f"rope kind {rope.kind!r} needs {missing}") from None


def _default(frequencies: torch.Tensor, theta: float, params: Params) -> Scaled:
    return frequencies, 1.0


def _linear(frequencies: torch.Tensor, theta: float, params: Params) -> Scaled:
    return frequencies / params["factor"], 1.0


def _llama3(frequencies: torch.Tensor, theta: float, params: Params) -> Scaled:
    """Long wavelengths are interpolated, short ones kept, those between blended by turns in the trained context."""
    low, high = params["low_freq_factor"], params["high_freq_factor"]
    turns = params["original_max_position"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return torch.lerp(frequencies / params["factor"], frequencies, kept), 1.0


def _yarn(frequencies: torch.Tensor, theta: float, params: Params) -> Scaled:
    """Blended by pair index, linearly between the pairs that turn beta_fast and beta_slow times (arXiv 2309.00071)."""
    pairs, trained = len(frequencies), params["original_max_position"]

    def pair_of(turns: float) -> float:
        return pairs * math.log(trained / (turns * 2 * math.pi)) / math.log(theta)

    first, last = pair_of(params.get("beta_fast", 32.0)), pair_of(params.get("beta_slow", 1.0))
    if params.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    width = (last - first) or 1e-3  # the published code's guard against a ramp of no width
    interpolated = ((torch.arange(pairs, dtype=torch.float64) - first) / width).clamp(0, 1)
    return torch.lerp(frequencies, frequencies / params["factor"], interpolated), _yarn_factor(params)


def _yarn_factor(params: Params) -> float:
    def of(mscale: float) -> float:
        return 0.1 * mscale * math.log(max(params["factor"], 1.0)) + 1.0

    given, mscale, all_dim = (params.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim"))
    if given is not None:
        return given
    return of(mscale) / of(all_dim) if mscale and all_dim else of(1.0)


KINDS: dict[str, Callable[[torch.Tensor, float, Params], Scaled]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
