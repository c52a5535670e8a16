"""What can be planned: which layers may store what, and which histories may have a twin.

Wider than `LAYER_CAPABILITIES`, what can be compiled: bytes are known long before a kernel is.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StorageCapability:
    """One encoding of one kind of layer's rows.

    ``kind`` is a layer kind, with its variant where it has several (`mla_sparse dsa`); ``twins``: encodings in which
    retained tokens may be kept beside such a history; ``dtypes``: activation dtypes that may be stored in it;
    ``draft``: whether draft layers may store it.
    """

    kind: str
    encoding: str
    twins: tuple[str, ...]
    dtypes: tuple[str, ...]
    draft: bool = True


_ALL, _NO_FP16 = ("fp32", "bf16", "fp16"), ("fp32", "bf16")

# Encoding -> activation dtypes. No fp16 under bf16: three bits of its mantissa would go without anyone having asked
# for a quantized cache; the rope part of the DeepSeek rows is bf16.
_DTYPES = {"bf16": _NO_FP16, "fp8_ds_mla": _NO_FP16, "fp8_ds_mla_v4": _NO_FP16}

# Kind -> encoding of the history -> encodings of its twin: dense layers read bf16 or fp8 twins, sparse ones fp8.
_TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "gqa": {"fp32": (), "bf16": (), "fp8": ("bf16",), "nvfp4": ("fp8", "bf16")},
    "mla": {
        "fp32": (),
        "bf16": (),
        "fp8": ("bf16",),
        "nvfp4": ("fp8", "bf16"),
        "nvfp4_rope_fp8": ("fp8", "bf16"),
        "nvfp4_residual": ("fp8", "bf16"),
        "fp8_ds_mla": (),
    },
    "mla_sparse dsa": {
        "fp32": (),
        "bf16": (),
        "fp8": (),
        "nvfp4": ("fp8",),
        "nvfp4_rope_fp8": ("fp8",),
        "nvfp4_residual": ("fp8",),
        "fp8_ds_mla": (),
    },
    "mla_sparse deepseek_v4": {
        "fp32": (),
        "bf16": (),
        "fp8": (),
        "nvfp4": ("fp8",),
        "nvfp4_rope_fp8": ("fp8",),
        "nvfp4_residual": ("fp8",),
        "fp8_ds_mla_v4": (),
    },
}
STORAGE_CAPABILITIES: tuple[StorageCapability, ...] = tuple(
    StorageCapability(kind, encoding, twins, _DTYPES.get(encoding, _ALL))
    for kind, encodings in _TABLE.items()
    for encoding, twins in encodings.items()
)

# Encodings of index keys.
INDEX_ENCODINGS: tuple[str, ...] = ("index_key", "bf16", "fp32")

# Layer kind and variant -> coverages that it can have; `recurrent` layers keep a state and no rows.
COVERAGES: dict[str, tuple[str, ...]] = {
    "gqa": ("full", "window", "chunk"),
    "mla": ("full",),
    "mla_sparse dsa": ("full",),
    "mla_sparse deepseek_v4": ("window", "compressed"),
    "recurrent mamba2": ("recurrent",),
    "recurrent gated_delta_net": ("recurrent",),
    "recurrent kda": ("recurrent",),
    "recurrent other": ("recurrent",),
}

# Coverages whose history may have a twin; others keep their rows in the twin's encoding.
TWINNED_COVERAGES: tuple[str, ...] = ("full", "compressed")
