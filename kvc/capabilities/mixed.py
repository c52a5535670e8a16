"""Mixed caches: which layers have a twin, in which encodings, and what is refused for which reason.

A **twin** is a second history that holds the first and last tokens in a higher precision. What a layer does in a mixed
cache is said here, never deduced from a dtype.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MixedLayer:
    """How layers of one ``kind`` and ``coverage`` take part in a mixed cache.

    ``pool``: what their own pool is: the `low` one that a twin may lie beside, a plain cache in the `high` encoding, or
    their `own`, which `retain` does not touch. ``why`` they have no twin; empty where they accept one.
    """

    kind: str
    coverage: str
    accepts_twin: bool
    pool: Literal["low", "high", "own"]
    why: str = ""


_RECENT = "a window holds its last rows only"
_CHUNK = "a chunk holds its own rows only"
_STATE = "a state has no rows"


def _twinned(kind: str, coverage: str) -> MixedLayer:
    return MixedLayer(kind, coverage, True, "low")


MIXED_LAYERS: tuple[MixedLayer, ...] = (
    _twinned("gqa", "full"),
    MixedLayer("gqa", "window", False, "high", _RECENT),
    MixedLayer("gqa", "chunk", False, "high", _CHUNK),
    _twinned("mla", "full"),
    _twinned("mla_sparse dsa", "full"),
    _twinned("mla_sparse deepseek_v4", "compressed"),
    MixedLayer("mla_sparse deepseek_v4", "window", False, "high", _RECENT),
    MixedLayer("recurrent mamba2", "recurrent", False, "own", _STATE),
    MixedLayer("recurrent gated_delta_net", "recurrent", False, "own", _STATE),
    MixedLayer("recurrent kda", "recurrent", False, "own", _STATE),
    MixedLayer("recurrent other", "recurrent", False, "own", _STATE),
)

# Layers of any kind in the draft domain; `draft.encoding` says what the high encoding is there.
DRAFT_LAYER = MixedLayer("any", "any", False, "high", "the target's layers verify what a draft layer reads")

# Keys of an indexer, beside rows of any kind: `indexer.encoding` is theirs.
INDEX_KEY = MixedLayer("any", "any", False, "own", "the choice of rows is not to depend on what is retained")


def mixed_layer(kind: str, coverage: str, domain: str = "target") -> MixedLayer:
    """How such a layer takes part in a mixed cache; KeyError for a pair that no row is about."""
    if domain == "draft":
        return DRAFT_LAYER
    return _BY_KIND[kind, coverage]


_BY_KIND = {(row.kind, row.coverage): row for row in MIXED_LAYERS}


@dataclass(frozen=True)
class TwinReads:
    """Encodings of twins that the attention of a ``kind`` of layer can read, and ``why`` no others."""

    kind: str
    encodings: tuple[str, ...]
    why: str


_DENSE = "dense attention reads twins of one plane a field, in a dtype of its matrix products"
_SPARSE = "the rows that an indexer chooses are gathered as fp8 codes, so that a twin's bytes are copied as they are"

TWIN_READS: dict[str, TwinReads] = {
    row.kind: row
    for row in (
        TwinReads("gqa", ("fp8", "bf16"), _DENSE),
        TwinReads("mla", ("fp8", "bf16"), _DENSE),
        TwinReads("mla_sparse dsa", ("fp8",), _SPARSE),
        TwinReads("mla_sparse deepseek_v4", ("fp8",), _SPARSE),
    )
}

# Encodings of histories by precision: what a twin stores must be of a higher one.
PRECISION: dict[str, int] = {
    "nvfp4": 4,
    "nvfp4_rope_fp8": 5,
    "nvfp4_residual": 5,
    "fp8": 8,
    "fp8_ds_mla": 8,
    "fp8_ds_mla_v4": 8,
    "bf16": 16,
    "fp32": 32,
}

# Histories that have no twin whatever its encoding.
_FOREIGN = "whole rows in the format of other engines' kernels, which read one pool"
UNTWINNED: dict[str, str] = {"fp8_ds_mla": _FOREIGN, "fp8_ds_mla_v4": _FOREIGN}


def twin_encodings(kind: str, encoding: str) -> tuple[str, ...]:
    """Encodings that a twin of such a history may have; none where either name is unknown."""
    if encoding in UNTWINNED or encoding not in PRECISION or kind not in TWIN_READS:
        return ()
    return tuple(high for high in TWIN_READS[kind].encodings if PRECISION[high] > PRECISION[encoding])


_BRANCHES = (
    "accepted tokens lie on one branch of a tree, so accepting them moves rows inside pools; "
    "steps give rows back from the end alone"
)

# `draft.tree` -> why it is refused; empty where it is not.
DRAFT_TREES: dict[str, str] = {
    "none": "",
    "static": _BRANCHES,
    "dynamic": f"{_BRANCHES}, and a tree that changes by step changes which rows a twin must hold",
}

# Kind of layer -> variant that is known by name -> why it is refused.
_OTHER_LATENT = "which tokens its rows stand for, and so which of them are first and last, is not described here"
REFUSED_VARIANTS: dict[str, dict[str, str]] = {
    "mla_sparse": {
        "csa2": f"DeepSeek-V4.1 CSA2: {_OTHER_LATENT}",
        "deepseek_v4_1": f"DeepSeek-V4.1 CSA2: {_OTHER_LATENT}",
        "nsa": "native sparse attention compresses, selects and slides over plain K and V, which have no latent",
        "moba": "mixture of block attention chooses blocks of K and V, which have no latent",
    }
}
