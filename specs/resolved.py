"""A checked spec as plain data: what the plan and the lowering read.

No pydantic here: the classes travel into code that must load without it.
"""

from dataclasses import dataclass
from typing import Any, Literal

from kvc.diagnostics import Source
from kvc.encodings import Field

Domain = Literal["target", "draft"]


@dataclass(frozen=True)
class Rope:
    """A rotary embedding: ``dim`` rotated features a head (the rest pass), ``params`` the kind's numbers, sorted."""

    kind: str
    layout: Literal["half", "interleaved"]
    dim: int
    theta: float
    params: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class GqaShape:
    """Attention dimensions of a `gqa` layer; ``rope`` None: positions are not encoded."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    softmax_scale: float
    rope: Rope | None
    kind: Literal["gqa"] = "gqa"

    @property
    def fields(self) -> tuple[Field, ...]:
        """What one token's row holds, in page order."""
        return Field("k", self.kv_heads, self.head_dim), Field("v", self.kv_heads, self.v_head_dim)


@dataclass(frozen=True)
class Coverage:
    """Which tokens a layer keeps."""

    kind: str = "full"
    window: int | None = None
    keep_first: int = 0

    def __str__(self) -> str:
        return self.kind if self.window is None else f"{self.kind} {self.window}"


@dataclass(frozen=True)
class ScaleSource:
    """Where the scales of a layer's history come from; one value a field (`k`, `v`), empty for `none`."""

    kind: Literal["none", "unit", "values"]
    values: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class LayerRun:
    """``count`` adjacent equal layers from index ``first`` on, and how their history is stored."""

    first: int
    count: int
    shape: GqaShape
    coverage: Coverage
    encoding: str
    tokens_per_page: int
    scales: ScaleSource
    domain: Domain
    source: Source

    @property
    def layers(self) -> range:
        """Layer indices of the run."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class Memory:
    """Device memory in bytes, the fraction of what is left after ``reserve_bytes`` that the cache may take."""

    device_bytes: int
    free_fraction: float
    reserve_bytes: int


@dataclass(frozen=True)
class Target:
    """What the compiled program must serve; ``buckets`` are numbers of sequences of a generation step, ascending."""

    device: Literal["cpu", "cuda"]
    arch: str | None
    max_sequences: int
    max_seq_len: int
    max_tokens: int
    buckets: tuple[int, ...]


@dataclass(frozen=True)
class ResolvedSpec:
    """A whole spec; ``digest`` is the sha256 of ``values``, the spec as JSON data, so comments do not change it."""

    name: str
    file: str
    digest: str
    dtype: Literal["bf16", "fp16", "fp32"]
    max_position: int
    runs: tuple[LayerRun, ...]
    memory: Memory | None
    target: Target
    require: tuple[str, ...]
    values: dict[str, Any]

    @property
    def num_layers(self) -> int:
        """Layers of the target and the draft together."""
        return sum(run.count for run in self.runs)
