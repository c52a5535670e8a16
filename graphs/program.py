"""A compiled cache program: graphs shared by equal layers, and the bindings that make them a model."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from kvc.graphs.graph import Graph

Phase = Literal["context", "generation"]
PHASES: tuple[Phase, ...] = ("context", "generation")

# What an engine that computes attention itself calls of a layer: each is a graph of its own, in every phase.
STAGING_PARTS = ("stage", "write_back")


@dataclass(frozen=True)
class Section:
    """One part of the packed step buffer: int32, ``dims`` are numbers and dimension names (`("G", "B", "W")`)."""

    name: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True)
class Constant:
    """A tensor made when the artifact is loaded.

    `scale`: float32[2], ``params`` codec and value, or the names that a checkpoint may have the value under.
    `rope_table`: float32[rows, dim], ``params`` the rotary embedding's numbers and the sha256 of the table's bytes.
    `weight`: ``params`` the name of the checkpoint's tensor, the part of it, sizes of one rank and number of ranks.
    """

    kind: Literal["scale", "rope_table", "weight"]
    params: dict[str, Any]


@dataclass(frozen=True)
class Binding:
    """Layer ``layer`` runs the graphs of ``signature`` on its own buffers and constants.

    ``pools`` maps what a layer keeps (`history`, `twin`) to its pool and the index of its buffer in each slot of that;
    ``constants`` a placeholder (`scale.k`) to the id of its constant. ``selected_from`` is the layer whose choice of
    rows it reads, where it makes none of its own.
    """

    layer: int
    signature: str
    pools: dict[str, tuple[int, int]]
    constants: dict[str, str]
    selected_from: int | None = None


@dataclass(frozen=True)
class Region:
    """The place of one value in the workspace: of result ``value`` of ``graph``, or of a call's scratch."""

    graph: str
    value: str
    offset: int
    bytes: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.bytes


@dataclass(frozen=True)
class Workspace:
    """Memory for the values that live inside a graph and the scratch of its calls, in bytes, at the target's limits.

    All graphs use the same bytes, one after another.
    """

    bytes: int = 0
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class CaptureRegion:
    """One callable to capture, and how each of its inputs is refreshed before a replay.

    ``inputs`` maps a qualified placeholder to `static` (address fixed), `copied` (copied each step into a fixed buffer)
    or `derived` (computed inside the captured region).
    """

    callable: str
    phase: Phase
    inputs: dict[str, Literal["static", "copied", "derived"]]


@dataclass(frozen=True)
class CapturePlan:
    """What `GraphRunner` captures: a set of regions per bucket (number of sequences of a generation step)."""

    buckets: tuple[int, ...]
    regions: tuple[CaptureRegion, ...]


@dataclass(frozen=True)
class Program:
    """Everything that runs in a step.

    ``graphs`` are keyed by (signature, phase), those of layers that are staged by (`gqa0.stage`, phase) and
    (`gqa0.write_back`, phase); ``prologues`` run once a step and are empty until `hoist_step_invariants` makes them;
    ``signatures`` describe what made a layer's graph its own; ``max_tokens`` is the largest number of tokens in a step.
    """

    name: str
    dtype: Literal["bf16", "fp16", "fp32"]
    device: Literal["cpu", "cuda"]
    arch: str | None
    graphs: Mapping[tuple[str, Phase], Graph]
    prologues: Mapping[Phase, Graph]
    bindings: tuple[Binding, ...]
    constants: Mapping[str, Constant]
    signatures: Mapping[str, dict[str, Any]]
    step: Mapping[Phase, tuple[Section, ...]]
    table_width: int
    buckets: tuple[int, ...]
    max_tokens: int = 0
    workspace: Workspace = field(default_factory=Workspace)
    capture: CapturePlan | None = None

    def callables(self, signature: str) -> tuple[str, ...]:
        """What a layer of the signature can be called for, as ``graphs`` names it: itself, or its two parts."""
        staged = self.signatures[signature].get("kernel") == "engine"
        return tuple(f"{signature}.{part}" for part in STAGING_PARTS) if staged else (signature,)

    def graphs_of(self, signature: str) -> dict[tuple[str, Phase], Graph]:
        """The graphs that there are of a signature's layers, phase by phase."""
        keys = [(name, phase) for phase in PHASES for name in self.callables(signature)]
        return {key: self.graphs[key] for key in keys if key in self.graphs}

    def map_graphs(self, change: Callable[[Graph], Graph]) -> "Program":
        """A program with ``change`` applied to every layer graph and prologue."""
        return replace(
            self,
            graphs={key: change(graph) for key, graph in self.graphs.items()},
            prologues={phase: change(graph) for phase, graph in self.prologues.items()},
        )

    def named_graphs(self) -> dict[str, Graph]:
        """Name (`gqa0.generation`, `prologue.context`) -> graph, prologues first."""
        graphs = {f"prologue.{phase}": graph for phase, graph in self.prologues.items()}
        return graphs | {f"{signature}.{phase}": graph for (signature, phase), graph in self.graphs.items()}

    def to_json(self) -> dict[str, Any]:
        """All but the graphs as plain data; the graphs travel as text."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "device": self.device,
            "arch": self.arch,
            "table_width": self.table_width,
            "buckets": list(self.buckets),
            "max_tokens": self.max_tokens,
            "workspace": asdict(self.workspace),
            "capture": asdict(self.capture) if self.capture else None,
            "step": {phase: [[s.name, list(s.dims)] for s in sections] for phase, sections in self.step.items()},
            "constants": {key: asdict(constant) for key, constant in self.constants.items()},
            "signatures": dict(self.signatures),
            "bindings": [vars(binding) for binding in self.bindings],
        }


def signature_of(name: str) -> str:
    """The signature that a graph is of, by the name ``Program.graphs`` has it under: `gqa0` of `gqa0.stage`."""
    return name.partition(".")[0]


def part_of(name: str) -> str:
    """`stage` of `gqa0.stage`; empty for a layer's one graph."""
    return name.partition(".")[2]


def program_from_json(data: Mapping[str, Any], graphs: Mapping[str, Graph]) -> Program:
    """The program of ``Program.to_json`` and its graphs by name; KeyError or TypeError where the data is not one."""
    return Program(
        name=data["name"],
        dtype=data["dtype"],
        device=data["device"],
        arch=data["arch"],
        graphs={_key(name): graph for name, graph in graphs.items() if not name.startswith("prologue.")},
        prologues={_key(name)[1]: graph for name, graph in graphs.items() if name.startswith("prologue.")},
        bindings=tuple(map(_binding, data["bindings"])),
        constants={key: Constant(**constant) for key, constant in data["constants"].items()},
        signatures=dict(data["signatures"]),
        step={phase: tuple(Section(n, tuple(d)) for n, d in rows) for phase, rows in data["step"].items()},
        table_width=data["table_width"],
        buckets=tuple(data["buckets"]),
        max_tokens=data["max_tokens"],
        workspace=_workspace(data["workspace"]),
        capture=_capture(data["capture"]),
    )


def _binding(data: Mapping[str, Any]) -> Binding:
    pools = {role: (pool, index) for role, (pool, index) in data["pools"].items()}
    return Binding(**{**data, "pools": pools})


def _workspace(data: Mapping[str, Any]) -> Workspace:
    return Workspace(data["bytes"], tuple(Region(**region) for region in data["regions"]))


def _capture(data: Mapping[str, Any] | None) -> CapturePlan | None:
    if data is None:
        return None
    return CapturePlan(tuple(data["buckets"]), tuple(CaptureRegion(**region) for region in data["regions"]))


def _key(name: str) -> tuple[str, Phase]:
    signature, _, phase = name.rpartition(".")
    return signature, phase  # type: ignore[return-value]
