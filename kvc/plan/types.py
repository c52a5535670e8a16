"""The memory plan as plain data.

Every class is frozen and goes through JSON unchanged (`to_json`, `from_json`): a plan made from a spec, one read
from an artifact and one printed by ``kvc plan --json`` are equal. Graphs, artifact and runtime import this file, so
it imports no more than the standard library and the equally plain `kvc.diagnostics` and `kvc.specs.resolved`.

Units: ``*_bytes`` are whole bytes, ``bytes_per_token`` exact fractions, ``layers`` indices into the model.
"""

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from kvc.diagnostics import Source, fail
from kvc.encodings import StateTensor
from kvc.plan.stale import held_pages
from kvc.specs.resolved import Coverage, Domain

Json = dict[str, Any]


def _exact(name: str, value: Fraction) -> Json:
    """``value`` for people (an int where whole, else a float) and, where that rounds, exactly as `p/q`."""
    if value.denominator == 1:
        return {name: value.numerator}
    return {name: float(value), f"{name}_exact": str(value)}


def _read_exact(name: str, data: Json) -> Json:
    """``data`` with ``name`` as the fraction that `_exact` wrote."""
    plain = dict(data)
    approximate = plain.pop(name)
    return plain | {name: Fraction(plain.pop(f"{name}_exact", approximate))}


def _state(data: Json) -> StateTensor:
    return StateTensor(data["name"], tuple(data["shape"]), data["dtype"], data["sharded"])


@dataclass(frozen=True)
class LayerGroup:
    """Equal buffers of several layers: one encoding, one page layout, one lifecycle; layers need not be adjacent.

    ``page_bytes`` and ``row_bytes`` (one row, rounding left out; ``scale_bytes`` of it are block scales) are of one
    buffer; ``bytes_per_token`` (slope) and ``bytes_per_sequence`` (fixed) are of all layers of the group. A page is of
    ``tokens_per_page`` source tokens and holds ``rows_per_page`` rows: fewer where they are compressed, one where it
    holds ``states``. ``role`` is what the buffers hold: `history`, `twin`, `index_key`, `window`, `compressor` or
    `state`. ``shards``: ranks that hold different parts of it, the others have copies.
    """

    name: str
    role: str
    layers: tuple[int, ...]
    encoding: str
    coverage: str
    domain: Domain
    lifecycle: int
    pool: int
    pool_group: int
    tokens_per_page: int
    rows_per_page: int
    row_bytes: int
    scale_bytes: int
    page_bytes: int
    bytes_per_token: Fraction
    bytes_per_sequence: int
    shards: int
    states: tuple[StateTensor, ...]
    source: Source

    @property
    def rounding_bytes(self) -> int:
        """Bytes of a page that hold nothing: what the alignment of its planes costs."""
        return self.page_bytes - self.row_bytes * self.rows_per_page

    def to_json(self) -> Json:
        """Plain data; the source becomes `{path, line, column}`, a state `{name, shape, dtype, sharded, bytes}`."""
        states = [asdict(state) | {"shape": list(state.shape), "bytes": state.nbytes} for state in self.states]
        plain = asdict(self) | {"layers": list(self.layers), "states": states}
        return plain | _exact("bytes_per_token", self.bytes_per_token)

    @classmethod
    def from_json(cls, data: Json) -> "LayerGroup":
        """The inverse of `to_json`; TypeError or KeyError where the data is not a layer group."""
        states = tuple(map(_state, data["states"]))
        parts = {"layers": tuple(data["layers"]), "source": Source(**data["source"]), "states": states}
        return cls(**_read_exact("bytes_per_token", data) | parts)


@dataclass(frozen=True)
class Lifecycle:
    """Layers whose pages come and go together; they share slot ids and slot tables.

    ``coverage`` is the rule that says which pages are stale (`kvc.plan.stale`). ``pools`` are ordered by slot size,
    descending: the position of a pool is that of its memory in ``PoolGroup.slot_sizes``.
    """

    id: int
    coverage: Coverage
    domain: Domain
    tokens_per_page: int
    pool_group: int
    pools: tuple[int, ...]
    bytes_per_token: Fraction
    bytes_per_sequence: int

    def to_json(self) -> Json:
        """Plain data; the coverage becomes `{kind, window, keep_first, ratio}`."""
        return asdict(self) | {"pools": list(self.pools)} | _exact("bytes_per_token", self.bytes_per_token)

    @classmethod
    def from_json(cls, data: Json) -> "Lifecycle":
        """The inverse of `to_json`; TypeError or KeyError where the data is not a lifecycle."""
        parts = {"pools": tuple(data["pools"]), "coverage": Coverage(**data["coverage"])}
        return cls(**_read_exact("bytes_per_token", data) | parts)


@dataclass(frozen=True)
class Pool:
    """Memory of equal slots for the buffers of one lifecycle that have equal pages.

    A slot holds ``pages_per_slot`` pages of ``page_bytes``, one a buffer. Page id = slot * pages_per_slot + index.
    """

    id: int
    lifecycle: int
    pool_group: int
    page_bytes: int
    pages_per_slot: int
    slot_bytes: int

    def to_json(self) -> Json:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> "Pool":
        """The inverse of `to_json`; TypeError where the data is not a pool."""
        return cls(**data)


@dataclass(frozen=True)
class PoolGroup:
    """Lifecycles with equal slot-size lists: one free list, interchangeable slots.

    ``slot_sizes`` are the bytes of a slot in each of a lifecycle's pools, descending, ``slot_bytes`` their sum;
    ``num_slots`` is None while no memory size is known.
    """

    id: int
    slot_bytes: int
    slot_sizes: tuple[int, ...]
    num_slots: int | None
    lifecycles: tuple[int, ...]

    def to_json(self) -> Json:
        """Plain data."""
        return asdict(self) | {"slot_sizes": list(self.slot_sizes), "lifecycles": list(self.lifecycles)}

    @classmethod
    def from_json(cls, data: Json) -> "PoolGroup":
        """The inverse of `to_json`; TypeError or KeyError where the data is not a pool group."""
        return cls(**data | {"slot_sizes": tuple(data["slot_sizes"]), "lifecycles": tuple(data["lifecycles"])})


@dataclass(frozen=True, slots=True)
class Buffer:
    """One cache of one layer: page ``index`` of every slot of ``pool``, at byte ``index * page_bytes`` of the slot."""

    layer: int
    role: str
    domain: Domain
    pool: int
    index: int
    page_bytes: int

    def to_json(self) -> Json:
        """Plain data (not through `asdict`, which is slow for thousands of layers)."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Json) -> "Buffer":
        """The inverse of `to_json`; TypeError where the data is not a buffer."""
        return cls(**data)


@dataclass(frozen=True)
class Capacity:
    """What fits.

    ``memory_bytes`` is the device's, ``cache_bytes`` what the cache may take of it, ``used_bytes`` what whole slots
    take of that. ``tokens``: in whole pages, the cache filled by sequences of ``max_seq_len`` and one with the rest.
    """

    memory_bytes: int
    reserve_bytes: int
    free_fraction: float
    cache_bytes: int
    used_bytes: int
    tokens: int
    max_seq_len: int
    sequences_at_max_len: int

    def to_json(self) -> Json:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> "Capacity":
        """The inverse of `to_json`; TypeError where the data is not a capacity."""
        return cls(**data)


@dataclass(frozen=True)
class Overheads:
    """Bytes on the device beside the pools, whatever their size.

    ``scale_bytes``: scale operands, equal ones once; ``rope_bytes``: tables of cos and sin; ``table_bytes``: slot and
    page tables of a full step; ``null_page_bytes``: a page that padding would write to, which kvc does not need;
    ``scratch_bytes``: workspace of the layers, None where it is known only once they are compiled.
    """

    scale_bytes: int
    rope_bytes: int
    table_bytes: int
    null_page_bytes: int
    scratch_bytes: int | None

    def to_json(self) -> Json:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> "Overheads":
        """The inverse of `to_json`; TypeError where the data is not overheads."""
        return cls(**data)


@dataclass(frozen=True)
class Plan:
    """Where every byte of a cache goes, on one of ``tensor_parallel`` ranks.

    ``bytes_per_token`` is the slope: layers whose history grows without bound. ``bytes_per_sequence`` is fixed: windows
    at their longest, recurrent state, twins. ``draft_tokens`` a step may be rolled back: every sequence holds room for
    so many more. ``capacity`` is None while no memory size is known.
    """

    name: str
    digest: str
    bytes_per_token: Fraction
    bytes_per_sequence: int
    layer_groups: tuple[LayerGroup, ...]
    lifecycles: tuple[Lifecycle, ...]
    pools: tuple[Pool, ...]
    pool_groups: tuple[PoolGroup, ...]
    buffers: tuple[Buffer, ...]
    capacity: Capacity | None
    notes: tuple[str, ...]
    overheads: Overheads
    draft_tokens: int = 0
    tensor_parallel: int = 1

    @property
    def smallest_request_bytes(self) -> int:
        """Bytes that a sequence of one token takes: the slots that every lifecycle holds for it."""
        return sum(self.slots_of(lifecycle, 1) * self._slot_bytes(lifecycle) for lifecycle in self.lifecycles)

    def slots_of(self, lifecycle: Lifecycle, tokens: int) -> int:
        """Most slots that a sequence of ``tokens`` holds in a lifecycle."""
        return held_pages(lifecycle.coverage, tokens, lifecycle.tokens_per_page, self.draft_tokens)

    def twin_of(self, layer: int) -> tuple[int, int] | None:
        """The (pool, index) of a layer's twin; None for draft layers and whatever else keeps no retained rows.

        Layers are numbered as in the model, draft layers after the target's. KVC506 for one that keeps nothing.
        """
        buffers = [buffer for buffer in self.buffers if buffer.layer == layer]
        if not buffers:
            raise fail("KVC506", f"layer {layer!r} has no buffer in plan {self.name}")
        return next(((buffer.pool, buffer.index) for buffer in buffers if buffer.role == "twin"), None)

    def _slot_bytes(self, lifecycle: Lifecycle) -> int:
        return self.pool_groups[lifecycle.pool_group].slot_bytes

    def to_json(self) -> Json:
        """Plain data, keys as in ``kvc plan --json``."""
        totals = _exact("bytes_per_token", self.bytes_per_token) | {"bytes_per_sequence": self.bytes_per_sequence}
        parts = {name: [part.to_json() for part in getattr(self, name)] for name in _PARTS}
        rest = {
            "overheads": self.overheads.to_json(),
            "draft_tokens": self.draft_tokens,
            "tensor_parallel": self.tensor_parallel,
            "capacity": self.capacity and self.capacity.to_json(),
            "notes": list(self.notes),
        }
        return {"name": self.name, "digest": self.digest} | totals | parts | rest

    @classmethod
    def from_json(cls, data: Json) -> "Plan":
        """The inverse of `to_json`; TypeError or KeyError where the data is not a plan."""
        parts = {name: tuple(map(part.from_json, data[name])) for name, part in _PARTS.items()}
        capacity = data["capacity"] and Capacity.from_json(data["capacity"])
        rest = {
            "capacity": capacity,
            "notes": tuple(data["notes"]),
            "overheads": Overheads.from_json(data["overheads"]),
        }
        rest |= {name: data[name] for name in ("draft_tokens", "tensor_parallel")}
        return cls(**_read_exact("bytes_per_token", data) | parts | rest)


# The lists of a plan, in the order of its JSON, and the class of their elements.
_PARTS: dict[str, Any] = {
    "layer_groups": LayerGroup,
    "lifecycles": Lifecycle,
    "pools": Pool,
    "pool_groups": PoolGroup,
    "buffers": Buffer,
}
