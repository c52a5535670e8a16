"""A checked spec as plain data: what the plan and the lowering read.

No pydantic here: the classes travel into code that must load without it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kvc.diagnostics import Diagnostic, Source
from kvc.encodings import Field, StateTensor

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
    softcap: float | None = None
    sink_logits: bool = False
    shares_kv_of: int | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """What one token's row holds, in page order; nothing where it reads another layer's."""
        if self.shares_kv_of is not None:
            return ()
        return Field("k", self.kv_heads, self.head_dim), Field("v", self.kv_heads, self.v_head_dim)

    @property
    def capability(self) -> str:
        """Name in the capability tables."""
        return self.kind

    @property
    def options(self) -> tuple[str, ...]:
        """Fields that change what attention computes, where they are used."""
        used = {"softcap": self.softcap, "sink_logits": self.sink_logits or None, "shares_kv_of": self.shares_kv_of}
        return tuple(name for name, value in used.items() if value is not None)


@dataclass(frozen=True)
class IndexerShape:
    """An indexer: ``heads`` score one key a token; ``shared``: it takes an earlier layer's choice and has no key.

    ``rope_layout``: which of the features pair up that the layer's RoPE rotates; None where it rotates nothing.
    """

    heads: int
    head_dim: int
    top_k: int
    encoding: str
    shared: bool
    rope_layout: Literal["half", "interleaved"] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """What one token's row holds."""
        return () if self.shared else (Field("key", 1, self.head_dim),)


@dataclass(frozen=True)
class MlaShape:
    """Dimensions of latent attention; with an ``indexer`` it is `mla_sparse`, over the rows that it chooses."""

    heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    softmax_scale: float
    rope: Rope | None
    indexer: IndexerShape | None = None
    kind: Literal["mla", "mla_sparse"] = "mla"
    options: ClassVar[tuple[str, ...]] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """What one token's row holds, in page order: one row for all heads."""
        return Field("latent", 1, self.kv_lora_rank), Field("rope", 1, self.qk_rope_head_dim)

    @property
    def capability(self) -> str:
        """Name in the capability tables."""
        return "mla_sparse dsa" if self.indexer else self.kind


@dataclass(frozen=True)
class CompressorShape:
    """Makes one row of ``ratio`` tokens; ``states`` hold the tokens that wait for it, values and gates."""

    ratio: int
    overlap: bool
    states: tuple[StateTensor, ...]


@dataclass(frozen=True)
class DeepseekV4Shape:
    """A window of plain rows and, with a ``compressor``, compressed rows of everything."""

    heads: int
    head_dim: int
    qk_rope_head_dim: int
    window: int
    softmax_scale: float
    rope: Rope | None
    sink_logits: bool
    compressor: CompressorShape | None
    indexer: IndexerShape | None
    kind: Literal["mla_sparse"] = "mla_sparse"
    capability: ClassVar[str] = "mla_sparse deepseek_v4"

    @property
    def fields(self) -> tuple[Field, ...]:
        """What one row holds, in page order; the same for plain and compressed rows."""
        return Field("latent", 1, self.head_dim - self.qk_rope_head_dim), Field("rope", 1, self.qk_rope_head_dim)

    @property
    def options(self) -> tuple[str, ...]:
        """Fields that change what attention computes, where they are used."""
        return ("sink_logits",) if self.sink_logits else ()


@dataclass(frozen=True)
class RecurrentShape:
    """A layer that keeps ``states`` of fixed size a sequence, and no rows."""

    variant: str
    states: tuple[StateTensor, ...]
    kind: Literal["recurrent"] = "recurrent"
    fields: ClassVar[tuple[Field, ...]] = ()
    options: ClassVar[tuple[str, ...]] = ()
    rope: ClassVar[None] = None

    @property
    def capability(self) -> str:
        """Name in the capability tables."""
        return f"{self.kind} {self.variant}"


Shape = GqaShape | MlaShape | DeepseekV4Shape | RecurrentShape


@dataclass(frozen=True)
class Coverage:
    """Which tokens a layer keeps; ``ratio`` source tokens a row where rows are compressed.

    ``window`` is the size of a chunk where the kind is `chunk`.
    """

    kind: str = "full"
    window: int | None = None
    keep_first: int = 0
    ratio: int = 1

    def __str__(self) -> str:
        sizes = (self.window, None if self.ratio == 1 else f"/{self.ratio}")
        return " ".join([self.kind, *(str(size) for size in sizes if size is not None)])


@dataclass(frozen=True)
class ScaleSource:
    """Where scales come from.

    One of ``values`` a field (`k`, `v`); for `checkpoint` the ``names`` that its tensor may have, `{layer}` in them.
    """

    kind: Literal["none", "unit", "values", "checkpoint"]
    values: tuple[tuple[str, float], ...] = ()
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields with a scale."""
        return tuple(field for field, _ in (*self.values, *self.names))


@dataclass(frozen=True)
class ContextAttention:
    """What Q, K and V of context attention are: of the activation dtype (`act`), or `fp8` under scales of q, k, v."""

    dtype: Literal["act", "fp8"] = "act"
    scales: ScaleSource = ScaleSource("none")


@dataclass(frozen=True)
class Retained:
    """The first and last tokens of a sequence, kept in a second history (a twin) under ``encoding``."""

    first: int
    last: int
    unit: Literal["token", "page"]
    encoding: str
    scales: ScaleSource


@dataclass(frozen=True)
class LayerRun:
    """``count`` adjacent equal layers from index ``first`` on, and how their history is stored.

    Dimensions are those of one rank; ``shards`` ranks hold different parts of a layer's cache, the others copies.
    ``kernel``: who computes attention; for an `engine` the history is staged.
    """

    first: int
    count: int
    shape: Shape
    coverage: Coverage
    encoding: str
    tokens_per_page: int
    scales: ScaleSource
    domain: Domain
    source: Source
    retain: Retained | None = None
    shards: int = 1
    context: ContextAttention = ContextAttention()
    kernel: Literal["kvc", "engine"] = "kvc"

    @property
    def layers(self) -> range:
        """Layer indices of the run."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class Memory:
    """Device memory in bytes, the fraction of what is left after ``reserve_bytes`` that the cache may take.

    ``pool_ratio``: one weight a lifecycle, empty where the mix of sequences decides.
    """

    device_bytes: int
    free_fraction: float
    reserve_bytes: int
    pool_ratio: tuple[float, ...] = ()


@dataclass(frozen=True)
class DraftRules:
    """How tokens are drafted: up to ``max_tokens`` a step that may be rolled back; ``pool`` as in the spec."""

    kind: str
    max_tokens: int
    pool: Literal["auto", "target", "own"]
    source: Source


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
    """A whole spec; ``digest`` is the sha256 of ``values``, the spec as JSON data, so comments do not change it.

    ``notes``: what its mixed cache means that its author may not expect.
    """

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
    draft: DraftRules | None = None
    tensor_parallel: int = 1
    notes: tuple[Diagnostic, ...] = ()

    @property
    def num_layers(self) -> int:
        """Layers of the target and the draft together."""
        return sum(run.count for run in self.runs)
